// A profile: a few steps with every kernel's start, end and program node. The records come from the
// device's own profiler where it has one, else from the executor's spans; tables and Chrome traces
// are made from both in the same way.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "analysis/lanes.h"
#include "base/signals.h"
#include "lab/measure/measurement.h"
#include "lab/measure/row_facts.h"
#include "lab/time/cell.h"
#include "record/activity.h"
#include "session/devices.h"
#include "spec/protocol.h"

namespace tracestep {

struct ProfileSpec {
  RunSpec step;
  // The timed steps run without recording and before the recorded ones, which are profiled. The
  // noise criterion is not used.
  Protocol protocol = {.warmup = 2, .steps = 5, .recorded_steps = 3};
  bool use_tracer = true;  // False: use the executor's spans even if the device has a profiler.
};

// Times of unrecorded steps: medians, every wall time, and the host's state around them.
struct PlainTimes {
  double wall_ms = 0, issue_ms = 0, span_ms = 0;
  std::vector<double> samples_ms = {}, warmup_ms = {};
  HostAround host = {};
};

// A kernel, copy or fill of a profiled step. Times are those of now_ns().
struct ProfiledLaunch {
  std::int32_t step = 0;
  std::int32_t node = kWholeStep;  // The program's node; kWholeStep: it belongs to no node.
  std::int32_t name = 0;           // index into Profile::names
  // An index into Profile::trace.activities; -1: the launch comes from an executor's span.
  std::int32_t activity = -1;
  std::int64_t start_ns = 0, end_ns = 0;

  std::int64_t duration_ns() const { return end_ns - start_ns; }
};

struct ProfiledStep : StepTimes {
  // The start of the first launch and the end of the last one.
  std::int64_t first_ns = 0, last_ns = 0;

  std::int64_t span_ns() const { return last_ns - first_ns; }
};

struct Profile {
  ProfileSpec spec;
  std::string device;
  bool is_asynchronous = false;
  // Where the records come from: "device profiler", with " inside a graph" if steps were replayed,
  // or "executor spans".
  std::string source;
  std::string problem;  // Why the device's profiler was not used; empty if it was or there is none.
  Status status = Status::kOk;
  std::string detail;  // Why memory ran out.
  Lack lack;           // The memory that was lacking.
  Program program;
  // When each node runs; empty: all are on one lane and there are no batches.
  std::vector<Turn> turns;
  // The number of kernels, copies and fills in the graph that recorded steps replayed; nullopt: no
  // graph was used.
  std::optional<std::int64_t> graph_kernels;
  std::vector<std::string> names;  // The names of kernels.
  std::vector<ProfiledStep> steps;
  std::vector<ProfiledLaunch> launches;  // Sorted by step, then by start.
  ActivityTrace trace;  // The device profiler's records; empty if the records are spans.
  std::vector<MemoryEvent> memory_events;
  PlainTimes plain;
};

// Returns the plain times of a cell that was timed; nullopt: it did not run. A profiler that was
// ever attached to the process may slow down everything after it, so callers that profile several
// cells time all of them first.
std::optional<PlainTimes> plain_times(const CellResult& timed);

// Profiles a step. `plain`: its plain times if known; else they are measured first. Throws
// Error{kFailed} if the profiler lost records.
Profile profile_step(const DeviceFactory& make_device, const ProfileSpec& spec,
                     const StopSignal* stop = nullptr,
                     const std::optional<PlainTimes>& plain = std::nullopt);

// Names a node's kernel when no profiler gives its name, with the dtype of its first tensor, and
// that of its first result where it is another: "matmul f32", "matmul_add bf16>f32".
std::string kernel_name(const Program& program, const Node& node);

}  // namespace tracestep
