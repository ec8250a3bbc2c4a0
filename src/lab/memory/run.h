// Runs a step with every allocation recorded, and compares it with its program's prediction: which
// buffer each block is, when it is allocated and freed, and whether any block was not predicted.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "analysis/memory_map.h"
#include "analysis/plan.h"
#include "lab/measure/measurement.h"
#include "lab/measure/row_facts.h"
#include "record/recorder.h"
#include "session/devices.h"
#include "spec/protocol.h"

namespace tracestep {

class BudgetNotMet;  // passes/recompute_budget.h

struct MemoryRunSpec {
  RunSpec step;
  // By default one step is recorded and none is timed. Timed steps alternate with as many recorded
  // ones, which shows the cost of recording. The noise criterion is not used.
  Protocol protocol = {.warmup = 1, .steps = 0, .recorded_steps = 1};
  // True: one more step measures the time of each kernel, from which the cost of recomputing
  // follows.
  bool times = true;
};

// The state when a request for memory failed.
struct OutOfMemoryState {
  std::int64_t requested_bytes = 0, limit_bytes = 0, reserved_bytes = 0;
  // The node that requested the memory; kNoNode: a weight, a state or an input, before the step.
  NodeId node = kNoNode;
  Category category = Category::kTemporary;
  bool on_host = false;  // True: the host's memory ran out and not the device's.
  std::vector<LiveAllocation> live;
  std::string message;
};

// A block of the recorded run and the buffer that it holds.
struct Holding {
  int buffer = -1;                  // index into MemoryMap::buffers; -1: not predicted
  std::size_t alloc = 0;            // index into MemoryRun::events
  std::optional<std::size_t> free;  // The event that frees it; none: it is alive at the end.
  std::int64_t requested_bytes = 0, rounded_bytes = 0;
};

// The moment at which a node has the most memory alive: its results and workspace are allocated,
// and nothing is freed yet.
struct Moment {
  NodeId node = kNoNode;
  std::size_t event = 0;  // the last event before it
  std::int64_t measured_bytes = 0, predicted_bytes = 0;
  std::int64_t time_ns = 0;  // host time since the recorded step began
};

struct MemoryRun {
  MemoryRunSpec spec;
  std::string device;
  Status status = Status::kOk;
  std::string detail;     // Why the run was not started; empty if it was.
  bool measured = false;  // False: the bytes are only predicted, and there are no events.
  bool computes = true;
  Program program;
  std::string recompute_note;  // What the pass `recompute` noted about its choice.
  DeviceTraits traits;
  BufferPlan buffer_plan;
  MemoryMap map;  // buffers that are predicted to live at each node
  // The peak that the executor predicted: by `map`, or by the arena's plan.
  std::int64_t predicted_peak_bytes = 0;
  std::optional<Plan> plan;  // The arena's plan; nullopt: the executor has no arena.
  std::int64_t parameters = 0;

  // Every event since the device was made, in order; the blocks of warm-up steps are left out.
  std::vector<MemoryEvent> events;
  // The name of the leaf in a block, by the block's address.
  std::map<std::uint64_t, std::string> leaf_at;
  std::size_t step_begin = 0;  // the first event of the recorded step
  std::int64_t step_begin_ns = 0, step_end_ns = 0;
  std::int64_t clock_to_unix_ns = 0;
  std::int64_t peak_bytes = 0, peak_reserved_bytes = 0;  // measured by the allocator
  std::int64_t host_bytes = 0;                           // Measured bytes in the host's memory.
  std::vector<Holding> holdings;
  // The fullest moment of each node that runs, in the order of running.
  std::vector<Moment> moments;
  std::vector<std::int64_t> node_ns;  // The kernel time of each node; empty: not measured.
  std::optional<OutOfMemoryState> oom;
  // The state of the host around all steps; empty if the bytes are only predicted.
  HostAround host;

  // If steps were timed: their median, the median of the recorded steps between them, and the time
  // that recording an event takes.
  double step_ms = 0, recorded_step_ms = 0, event_ns = 0;

  // True if there is a program; false: no recomputation meets the budget, and nothing was run.
  bool has_program() const { return !program.nodes.empty(); }
  const MappedBuffer* buffer(const Holding& h) const {
    return h.buffer < 0 ? nullptr : &map.buffers[static_cast<std::size_t>(h.buffer)];
  }
};

// Runs and records the step. Running out of memory is a result, not an exception.
MemoryRun run_memory(const DeviceFactory& make_device, const MemoryRunSpec& spec);

// Predicts the run from the program, without a device and without events.
MemoryRun predict_memory(const RunSpec& spec, const DeviceTraits& traits);

// Adds to a measured run what follows from its program, if it is missing: the file of finished
// cells does not keep it.
void add_program(MemoryRun& run, const DeviceTraits& traits);

// Returns the result for a step whose memory budget no recomputation meets: it is out of memory,
// its predicted peak is the least one that was found, and it has no program.
MemoryRun run_beyond_budget(const RunSpec& spec, const BudgetNotMet& error);

// Returns a sentence for each block or buffer without a partner, or with a size or lifetime other
// than predicted. Empty when the prediction is exact for every buffer.
std::vector<std::string> surprises(const MemoryRun& run);

}  // namespace tracestep
