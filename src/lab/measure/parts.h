// Forward and backward of a program by themselves, each timed from an idle device until it is idle
// again. The program's loss, Σ y·upstream, stands for what follows y: its kernels are in neither
// part.
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

// Pauses an executor before the first kernel of each of these nodes (those that are kNoNode left
// out), for the lifetime of this object: waits for the device, then calls `act` with the node's
// place among them.
class PauseClock {
 public:
  PauseClock(Executor& executor, Device& device, std::vector<NodeId> nodes,
             std::function<void(std::size_t at)> act = {});
  // When the device was idle there in the last step.
  std::int64_t at_ns(std::size_t at) const { return times_ns_[at]; }

 private:
  std::vector<std::int64_t> times_ns_;
  const Observation observation_;
};

struct PartTimes {
  std::vector<double> samples_ms, warmup_ms;
  std::vector<double> recorded_ms;  // sum of kernel times of each recorded step
  double busy_ms = 0;               // the median of these
  std::int64_t flops = 0;           // of matrix products
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
  // Times further steps without a stop between the parts: both parts and the two small kernels of
  // the loss.
  PartTimes whole;
  // Live requested bytes when forward is done, and at the peak of the whole step.
  std::int64_t before_backward_bytes = 0, predicted_before_backward_bytes = 0;
  std::int64_t peak_bytes = 0, predicted_peak_bytes = 0;
  DeviceFacts facts_before, facts_after;
  HostAround host;
  double roof_tflops = 0;                        // for the validity checker; 0: not known
  std::optional<double> roof_others_cores = {};  // kept busy by others while it was measured
};

// The highest speed of its parts; 0: none was timed.
double reached_tflops(const PartsResult& result);
// Joins the samples of a later visit. Both are ok.
void add_visit(PartsResult& result, const PartsResult& later);

// The scope of what is in neither part.
inline constexpr const char* kOutsideParts = "loss";
// Adds the output "loss" = Σ y·upstream. Returns its program.
Program with_upstream_loss(Builder& builder, Val y, Val upstream);

struct PartsProgram {
  Program program;
  // The first kernels of the forward part, behind it, and of the backward part; kNoNode: the first
  // of all, none, and there is no such part.
  NodeId forward_begin = kNoNode, forward_end = kNoNode, backward_begin = kNoNode;

  bool has_backward() const { return backward_begin != kNoNode; }
  bool is_forward(NodeId node) const {
    return node >= forward_begin && (node < forward_end || forward_end == kNoNode);
  }
  bool is_backward(NodeId node) const { return has_backward() && node >= backward_begin; }
};
// Finds the parts of a program after all passes.
PartsProgram parts_of(Program program);

// Bytes alive before `node` allocates anything, by the buffer plan.
std::int64_t live_bytes_before(const Program& program, NodeId node);
// The bytes that it takes, predicted without a run; with an arena, it and the leaves.
struct PartsBytes {
  std::int64_t before_backward = 0, peak = 0;
};
PartsBytes planned_bytes(const PartsProgram& program, ExecutorKind executor, const Device& device);

struct PartsRequest {
  const PartsProgram& program;
  const RunSpec& run;
  // Its noise criterion is not used, and max_seconds limits any timed steps; 0: no limit.
  const Protocol& protocol;
  std::function<void(Store& store, Executor& executor)> set_values = {};
  bool with_whole = true;
};
// Measures; out of memory is a result, and so is a peak that is predicted to exceed the limit, for
// which nothing is begun.
void measure_parts(Device& device, const PartsRequest& request, const StopSignal* stop,
                   PartsResult& out);

// Values uniform in [-1, 1), or for integers below `below`.
HostTensor random_tensor(const Type& type, std::uint64_t seed, std::string_view name,
                         std::int64_t below = 2);

}  // namespace tracestep
