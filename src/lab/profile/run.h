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
  // Its timed steps run without any recording, before the recorded ones, which are profiled. There
  // is no noise criterion.
  Protocol protocol = {.warmup = 2, .steps = 5, .recorded_steps = 3};
  bool use_tracer = true;  // false: the executor's spans, whatever the device has
};

// Times of steps without recording: medians, each wall time, and the host's state around them.
struct PlainTimes {
  double wall_ms = 0, issue_ms = 0, span_ms = 0;
  std::vector<double> samples_ms = {}, warmup_ms = {};
  HostAround host = {};
};

// A kernel, copy or fill of a profiled step. Times are those of now_ns().
struct ProfiledLaunch {
  std::int32_t step = 0;
  std::int32_t node = kWholeStep;  // kWholeStep: belongs to no node
  std::int32_t name = 0;           // index into Profile::names
  std::int32_t activity = -1;      // index into Profile::trace.activities; -1: from a span
  std::int64_t start_ns = 0, end_ns = 0;

  std::int64_t duration_ns() const { return end_ns - start_ns; }
};

struct ProfiledStep : StepTimes {
  std::int64_t first_ns = 0, last_ns = 0;  // first launch's start, last launch's end

  std::int64_t span_ns() const { return last_ns - first_ns; }
};

struct Profile {
  ProfileSpec spec;
  std::string device;
  bool is_asynchronous = false;
  std::string source;   // "device profiler", with or without " inside a graph"; "executor spans"
  std::string problem;  // why the device's profiler, if any, was not used
  Status status = Status::kOk;
  std::string detail;  // why it is out of memory
  Lack lack;           // of what memory
  Program program;
  std::vector<Turn> turns;  // of its nodes; empty: all on one lane, and no batches
  // Kernels, copies and fills of the graph that recorded steps replayed; nullopt: their launches
  // were issued one by one.
  std::optional<std::int64_t> graph_kernels;
  std::vector<std::string> names;  // of kernels
  std::vector<ProfiledStep> steps;
  std::vector<ProfiledLaunch> launches;  // by step, then by start
  ActivityTrace trace;                   // empty when the records are spans
  std::vector<MemoryEvent> memory_events;
  PlainTimes plain;
};

// Takes the times of a timed cell; nullopt: it did not run. A profiler that was once attached to
// the process may slow everything after it, so callers that profile several cells time all of them
// first.
std::optional<PlainTimes> plain_times(const CellResult& timed);

// `plain`: the plain times if known; otherwise they are measured before the profile. Error{kFailed}
// when the profiler lost records.
Profile profile_step(const DeviceFactory& make_device, const ProfileSpec& spec,
                     const StopSignal* stop = nullptr,
                     const std::optional<PlainTimes>& plain = std::nullopt);

// The name of a node's kernel when no profiler gives one, with the dtype of its first tensor, and
// that of its first result where it is another: "matmul f32", "matmul_add bf16>f32".
std::string kernel_name(const Program& program, const Node& node);

}  // namespace tracestep
