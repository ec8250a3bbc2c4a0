#include "backends/cuda/toolkit/cupti_tracer.h"

#include <cuda_runtime_api.h>
#include <cupti_driver_cbid.h>

#include <algorithm>
#include <cstdlib>
#include <mutex>

#include "backends/cuda/toolkit/check.h"
#include "backends/cuda/toolkit/cupti_records.h"
#include "backends/cuda/toolkit/waits.h"
#include "base/error.h"

namespace tracestep::cuda {
namespace {

constexpr std::size_t kBufferBytes = std::size_t{4} << 20;
constexpr std::size_t kBufferAlignment = 8;  // what CUPTI asks for
constexpr std::uint32_t kFlushForced = 1;
constexpr CUpti_ActivityKind kKinds[] = {
    CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION, CUPTI_ACTIVITY_KIND_RUNTIME,
    CUPTI_ACTIVITY_KIND_MEMCPY, CUPTI_ACTIVITY_KIND_MEMSET, CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL};
// The driver's calls that are recorded: launches, since libraries launch through the driver, too.
constexpr CUpti_CallbackId kDriverCalls[] = {
    CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel, CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel_ptsz,
    CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx, CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx_ptsz};

// CUPTI's callbacks fill this, on CUPTI's thread. One per process: callbacks take no user data.
struct Sink {
  std::mutex mutex;
  CuptiRecords records{cupti()};
  bool is_taken = false;  // by a tracer
  // Separate: CUPTI may hold a lock when it calls back, and reading records takes that lock.
  std::mutex graph_mutex;
  GraphNodes graph_nodes;
};
Sink& sink() {
  // Never destroyed: CUPTI may hand back a buffer while the process ends.
  static Sink& instance = *new Sink;
  return instance;
}

void CUPTIAPI give_buffer(std::uint8_t** buffer, std::size_t* size, std::size_t* max_records) {
  *buffer = static_cast<std::uint8_t*>(std::aligned_alloc(kBufferAlignment, kBufferBytes));
  *size = *buffer == nullptr ? 0 : kBufferBytes;
  *max_records = 0;  // as many as fit
}

void CUPTIAPI take_buffer(CUcontext context, std::uint32_t stream, std::uint8_t* buffer,
                          std::size_t, std::size_t valid_bytes) {
  std::size_t dropped = 0;
  // This runs without sink().mutex: CUPTI may hold a lock of its own and wait for that mutex.
  const bool has_count = cupti().dropped_records(context, stream, &dropped) == CUPTI_SUCCESS;
  {
    const std::scoped_lock lock(sink().mutex);
    if (has_count) sink().records.add_dropped(dropped);
    if (valid_bytes > 0) sink().records.read(buffer, valid_bytes);
  }
  std::free(buffer);
}

constexpr CUpti_CallbackId kGraphCalls[] = {CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED,
                                            CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED};

void CUPTIAPI see_graph_node(void*, CUpti_CallbackDomain, CUpti_CallbackId call, const void* data) {
  const auto& graph = *static_cast<const CUpti_GraphData*>(
      static_cast<const CUpti_ResourceData*>(data)->resourceDescriptor);
  const bool is_clone = call == CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED;
  std::uint64_t id = 0, original = 0;
  if (cupti().graph_node_id(graph.node, &id) != CUPTI_SUCCESS) return;
  if (is_clone && cupti().graph_node_id(graph.originalNode, &original) != CUPTI_SUCCESS) return;
  const std::scoped_lock lock(sink().graph_mutex);
  if (is_clone) {
    sink().graph_nodes.cloned(original, id);
  } else {
    sink().graph_nodes.created(id);
  }
}

// Returns the host's time, which CUPTI calls so that its records and host times share one clock.
std::uint64_t CUPTIAPI host_clock() {
  return static_cast<std::uint64_t>(now_ns());
}

class CuptiTracer final : public ActivityTracer {
 public:
  // Starts recording; `problem` stays empty when everything is on.
  explicit CuptiTracer(std::string& problem) {
    {
      const std::scoped_lock lock(sink().mutex);
      if (sink().is_taken) {
        problem = "another tracer of this process records already";
        return;
      }
      sink().is_taken = is_owner_ = true;
    }
    const auto must = [&](const char* what, CUptiResult result) {
      if (result != CUPTI_SUCCESS && problem.empty()) {
        problem = fmt::format("{}: {}", what, cupti_.text_of(result));
      }
    };
    follow_graphs();
    must("cuptiActivityRegisterTimestampCallback", cupti_.register_clock(host_clock));
    must("cuptiActivityRegisterCallbacks", cupti_.register_callbacks(give_buffer, take_buffer));
    for (CUpti_ActivityKind kind : kKinds) must("cuptiActivityEnable", cupti_.enable(kind));
    for (CUpti_CallbackId call : kDriverCalls) {
      must("cuptiActivityEnableDriverApi", cupti_.enable_driver_call(call, 1));
    }
  }
  ~CuptiTracer() override {
    if (!is_owner_) return;
    for (CUpti_CallbackId call : kDriverCalls) cupti_.enable_driver_call(call, 0);
    for (CUpti_ActivityKind kind : kKinds) cupti_.disable(kind);
    cupti_.flush_all(kFlushForced);
    if (subscriber_ != nullptr) cupti_.unsubscribe(subscriber_);
    const std::scoped_lock lock(sink().mutex, sink().graph_mutex);
    sink().records.take({});
    sink().graph_nodes.clear();
    sink().is_taken = false;
  }
  CuptiTracer(const CuptiTracer&) = delete;
  CuptiTracer& operator=(const CuptiTracer&) = delete;

  void start() override { take_all(); }  // what came before is forgotten
  void enter(NodeId node) override {
    cupti_.push_id(CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0, static_cast<std::uint64_t>(node) + 1);
    set_graph_node(node);
    mark();
  }
  void leave() override {
    std::uint64_t last = 0;
    cupti_.pop_id(CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0, &last);
    set_graph_node(kWholeStep);
    mark();
  }
  bool follows_captures() const override { return follows_; }
  ActivityTrace stop() override { return take_all(); }

 private:
  // Asks CUPTI to report graphs' nodes; it does not if another profiler is its one subscriber.
  void follow_graphs() {
    if (cupti_.subscribe(&subscriber_, see_graph_node, nullptr) != CUPTI_SUCCESS) {
      subscriber_ = nullptr;
      return;
    }
    follows_ = std::ranges::all_of(kGraphCalls, [&](CUpti_CallbackId call) {
      return cupti_.enable_callback(1, subscriber_, CUPTI_CB_DOMAIN_RESOURCE, call) ==
             CUPTI_SUCCESS;
    });
  }
  static void set_graph_node(NodeId node) {
    const std::scoped_lock lock(sink().graph_mutex);
    sink().graph_nodes.set_node(node);
  }
  // Makes a recorded call without effect, to mark where a node's launches begin and end.
  static void mark() { static_cast<void>(cudaPeekAtLastError()); }

  ActivityTrace take_all() {
    cuda::wait_for_device();
    const CUptiResult result = cupti_.flush_all(kFlushForced);
    if (result != CUPTI_SUCCESS) {
      throw DeviceError("cuda", "cuptiActivityFlushAll", cupti_.text_of(result));
    }
    const std::scoped_lock lock(sink().mutex, sink().graph_mutex);
    return sink().records.take(sink().graph_nodes);
  }

  const Cupti& cupti_ = cupti();
  bool is_owner_ = false;
  CUpti_SubscriberHandle subscriber_ = nullptr;
  bool follows_ = false;
};

}  // namespace

std::unique_ptr<ActivityTracer> make_cupti_tracer(std::string& problem) {
  problem = cupti().problem;
  if (!problem.empty()) return nullptr;
  auto tracer = std::make_unique<CuptiTracer>(problem);
  if (!problem.empty()) return nullptr;
  return tracer;
}

}  // namespace tracestep::cuda
