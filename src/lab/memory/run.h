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
  // By default one step is recorded; timed ones alternate with as many that are recorded too, which
  // shows what recording costs. There is no noise criterion.
  Protocol protocol = {.warmup = 1, .steps = 0, .recorded_steps = 1};
  bool times = true;  // a further step measures kernel times: the cost of recomputing
};

// The state when a request for memory failed.
struct OutOfMemoryState {
  std::int64_t requested_bytes = 0, limit_bytes = 0, reserved_bytes = 0;
  NodeId node = kNoNode;  // who asked; kNoNode: a weight, a state or an input, before the step
  Category category = Category::kTemporary;
  bool on_host = false;  // the host's memory ran out, not the device's
  std::vector<LiveAllocation> live;
  std::string message;
};

// A block of the recorded run and the buffer that it holds.
struct Holding {
  int buffer = -1;                  // index into MemoryMap::buffers; -1: not predicted
  std::size_t alloc = 0;            // index into MemoryRun::events
  std::optional<std::size_t> free;  // none: alive at the end
  std::int64_t requested_bytes = 0, rounded_bytes = 0;
};

// The moment when one node has the most memory alive: its results and workspace are allocated,
// nothing is freed yet.
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
  std::string detail;     // of a run that was not begun: why
  bool measured = false;  // false: only predicted, without events
  bool computes = true;
  Program program;
  std::string recompute_note;  // the reason for the choice of the pass `recompute`
  DeviceTraits traits;
  BufferPlan buffer_plan;
  MemoryMap map;                          // buffers that are predicted to live at each node
  std::int64_t predicted_peak_bytes = 0;  // by the executor: that of `map`, or of the arena
  std::optional<Plan> plan;               // of the arena; none: the executor has no arena
  std::int64_t parameters = 0;

  // Every event since the device was made, in order; the blocks of warm-up steps are left out.
  std::vector<MemoryEvent> events;
  std::map<std::uint64_t, std::string> leaf_at;  // the leaf's name, by the address of its block
  std::size_t step_begin = 0;                    // the first event of the recorded step
  std::int64_t step_begin_ns = 0, step_end_ns = 0;
  std::int64_t clock_to_unix_ns = 0;
  std::int64_t peak_bytes = 0, peak_reserved_bytes = 0;  // measured by the allocator
  std::int64_t host_bytes = 0;                           // measured: in the host's memory
  std::vector<Holding> holdings;
  std::vector<Moment> moments;        // by node that runs, in order
  std::vector<std::int64_t> node_ns;  // kernel time by node; empty: not measured
  std::optional<OutOfMemoryState> oom;
  HostAround host;  // around all steps; not where it is only predicted

  // With timed steps: their median, that of those recorded in turn, and the time to record an
  // event.
  double step_ms = 0, recorded_step_ms = 0, event_ns = 0;

  // False: the run was not begun, since no choice of what to compute again meets its budget.
  bool has_program() const { return !program.nodes.empty(); }
  const MappedBuffer* buffer(const Holding& h) const {
    return h.buffer < 0 ? nullptr : &map.buffers[static_cast<std::size_t>(h.buffer)];
  }
};

// Out of memory is a result, not an exception.
MemoryRun run_memory(const DeviceFactory& make_device, const MemoryRunSpec& spec);

// Predicts the run from the program, without a device and without events.
MemoryRun predict_memory(const RunSpec& spec, const DeviceTraits& traits);

// Adds what follows from the program to a run that was measured, where it is not there: a file of
// finished cells does not keep it.
void add_program(MemoryRun& run, const DeviceTraits& traits);

// A step that is out of memory whatever it computes again: its predicted peak is the least one, and
// it has no program.
MemoryRun run_beyond_budget(const RunSpec& spec, const BudgetNotMet& error);

// A sentence for each block or buffer without a partner, or with a size or lifetime other than
// predicted. Empty when the prediction is exact for every buffer.
std::vector<std::string> surprises(const MemoryRun& run);

}  // namespace tracestep
