// Times forward and backward of a program separately, each from an idle device until the device is
// idle again. The program's loss is Σ y·upstream, in place of what would follow y in a model; the
// loss's kernels count in neither part.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/signals.h"
#include "lab/measure/host_facts.h"
#include "lab/measure/measurement.h"
#include "lab/measure/row_facts.h"
#include "run/run_spec.h"
#include "spec/protocol.h"

namespace tracestep {

// Makes an executor pause before the first kernel of each of `nodes`, for the lifetime of this
// object: it waits until the device is idle, then calls `act` with the node's index in the list.
// Entries that are kNoNode are skipped.
class PauseClock {
 public:
  PauseClock(Executor& executor, Device& device, std::vector<NodeId> nodes,
             std::function<void(std::size_t at)> act = {});
  // Returns the time when the device was idle before node `at` of the list, in the last step.
  std::int64_t at_ns(std::size_t at) const { return times_ns_[at]; }

 private:
  std::vector<std::int64_t> times_ns_;
  const Observation observation_;
};

struct PartTimes {
  std::vector<double> samples_ms, warmup_ms;
  std::vector<double> recorded_ms;  // sum of kernel times of each recorded step
  double busy_ms = 0;               // The median of `recorded_ms`.
  std::int64_t flops = 0;           // The FLOPs of matrix products.
  std::int64_t launches = 0;
};

struct PartsResult {
  std::string device;
  Status status = Status::kOk;
  std::string detail;
  bool is_asynchronous = false;  // the device computes while the host goes on
  bool computes = true;
  // How many samples each visit took, where a driver visited the cell several times (add_visit()).
  std::vector<double> visits = {};
  PartTimes forward, backward;
  // Times of further steps, without a pause between the parts: forward, backward and the two small
  // kernels of the loss.
  PartTimes whole;
  // The requested bytes that are alive when forward is done, and at the peak of the whole step.
  std::int64_t before_backward_bytes = 0, predicted_before_backward_bytes = 0;
  std::int64_t peak_bytes = 0, predicted_peak_bytes = 0;
  DeviceFacts facts_before, facts_after;
  HostAround host;
  double roof_tflops = 0;  // The ceiling that the validity checker compares with; 0: not known.
  // The cores that other processes kept busy while the ceiling was measured.
  std::optional<double> roof_others_cores = {};
};

// Returns the highest TFLOP/s that a part reached; 0: no part was timed.
double reached_tflops(const PartsResult& result);
// Adds the samples of a later visit to those of the result. Both must have status kOk.
void add_visit(PartsResult& result, const PartsResult& later);

// The path of the nodes that belong to neither part.
inline constexpr const char* kOutsideParts = "loss";
// Adds the output "loss" = Σ y·upstream. Returns its program.
Program with_upstream_loss(Builder& builder, Val y, Val upstream);

struct PartsProgram {
  Program program;
  // Where the parts begin: the first kernel of forward, the first one after forward, and the first
  // one of backward. kNoNode: the first kernel of the program, no kernel, and no backward, in this
  // order.
  NodeId forward_begin = kNoNode, forward_end = kNoNode, backward_begin = kNoNode;

  bool has_backward() const { return backward_begin != kNoNode; }
  bool is_forward(NodeId node) const {
    return node >= forward_begin && (node < forward_end || forward_end == kNoNode);
  }
  bool is_backward(NodeId node) const { return has_backward() && node >= backward_begin; }
};
// Finds where the parts of a finished program begin.
PartsProgram parts_of(Program program);

// Returns the bytes that are alive before `node` allocates anything, by the buffer plan.
std::int64_t live_bytes_before(const Program& program, NodeId node);
// Predicted bytes before backward and at the peak; with an arena, the bytes of arena and leaves.
struct PartsBytes {
  std::int64_t before_backward = 0, peak = 0;
};
PartsBytes planned_bytes(const PartsProgram& program, ExecutorKind executor, const Device& device);

struct PartsRequest {
  const PartsProgram& program;
  const RunSpec& run;
  // The numbers of steps. The noise criterion is ignored; max_seconds limits the timed steps, 0: no
  // limit.
  const Protocol& protocol;
  std::function<void(Store& store, Executor& executor)> set_values = {};
  bool with_whole = true;
};
// Measures the parts. Running out of memory is a result and no error. If the predicted peak exceeds
// the memory limit, nothing runs and the result says so.
void measure_parts(Device& device, const PartsRequest& request, const StopSignal* stop,
                   PartsResult& out);

// Returns a tensor of values uniform in [-1, 1), or for integer types in [0, below).
HostTensor random_tensor(const Type& type, std::uint64_t seed, std::string_view name,
                         std::int64_t below = 2);

}  // namespace tracestep
