#include "backends/cuda/toolkit/cupti.h"

#include <cupti_version.h>
#include <dlfcn.h>

#include <fmt/format.h>

#include "base/shared_library.h"

namespace tracestep::cuda {
namespace {

constexpr int kMajor = CUPTI_API_VERSION / 10000;

Cupti load() {
  Cupti out;
  // Only the major version this was compiled with: records of another one may differ.
  void* library =
      open_shared_library(fmt::format("libcupti.so.{}", kMajor), toolkit_library_folders(kMajor));
  if (library == nullptr) {
    out.problem = fmt::format(
        "libcupti.so.{} is not there; install the CUDA {} libraries (with a wheel: its "
        "extra [cuda]) or set LD_LIBRARY_PATH",
        kMajor, kMajor);
    return out;
  }
  const auto get = [&]<class F>(F& function, const char* name) {
    function = reinterpret_cast<F>(dlsym(library, name));
    if (function == nullptr && out.problem.empty()) {
      out.problem = fmt::format("libcupti has no {}", name);
    }
  };
  get(out.register_callbacks, "cuptiActivityRegisterCallbacks");
  get(out.register_clock, "cuptiActivityRegisterTimestampCallback");
  get(out.enable, "cuptiActivityEnable");
  get(out.disable, "cuptiActivityDisable");
  get(out.enable_driver_call, "cuptiActivityEnableDriverApi");
  get(out.next_record, "cuptiActivityGetNextRecord");
  get(out.dropped_records, "cuptiActivityGetNumDroppedRecords");
  get(out.flush_all, "cuptiActivityFlushAll");
  get(out.push_id, "cuptiActivityPushExternalCorrelationId");
  get(out.pop_id, "cuptiActivityPopExternalCorrelationId");
  get(out.call_name, "cuptiGetCallbackName");
  get(out.subscribe, "cuptiSubscribe");
  get(out.unsubscribe, "cuptiUnsubscribe");
  get(out.enable_callback, "cuptiEnableCallback");
  get(out.graph_node_id, "cuptiGetGraphNodeId");
  get(out.result_text, "cuptiGetResultString");
  return out;
}

}  // namespace

std::string Cupti::text_of(CUptiResult result) const {
  const char* text = nullptr;
  if (result_text == nullptr || result_text(result, &text) != CUPTI_SUCCESS || text == nullptr) {
    return fmt::format("error {}", static_cast<int>(result));
  }
  return text;
}

const Cupti& cupti() {
  static const Cupti& loaded = *new Cupti(load());  // CUPTI may call while the process ends
  return loaded;
}

}  // namespace tracestep::cuda
