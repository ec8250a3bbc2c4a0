// Measures a cell of a benchmark (a model, a mode, a device): its times by four clocks, and its
// bytes.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "lab/measure/measurement.h"
#include "lab/measure/processes.h"
#include "lab/measure/rounds.h"
#include "lab/measure/row_facts.h"
#include "lab/report/table.h"
#include "lab/time/step_parts.h"
#include "record/recorder.h"
#include "session/devices.h"
#include "spec/protocol.h"
#include "spec/step_program.h"

namespace tracestep {

class BudgetNotMet;  // passes/recompute_budget.h

struct CellSpec {
  RunSpec step;
  Protocol protocol;
  int copy = 1;  // Numbers cells that are otherwise equal; the difference between copies is noise.
};

// A recorded step: its kernels, cut to the time that counts, and how much was cut off because other
// work had delayed single launches (interrupted_ms).
struct RecordedStep {
  // span_ns: from the first kernel's start to the last one's end; wall_ns: the time of the call.
  std::int64_t span_ns = 0, wall_ns = 0;
  std::vector<Span> spans = {};
  double interrupted_ms = 0;

  double busy_ms() const { return busy_ms_of(spans); }
};

struct CellResult {
  CellSpec spec;
  std::string device;
  Status status = Status::kOk;
  std::string detail;  // Why memory ran out.
  Lack lack;           // The memory that was lacking.
  // The state of the device before and after the timed steps.
  DeviceFacts facts_before, facts_after;
  HostAround host;      // The state of the host around warm-up and timed steps.
  std::string choices;  // Device::choices()
  std::int64_t parameters = 0;
  std::vector<double> samples_ms, warmup_ms;
  // Samples of the same steps by clocks other than the wall clock; and how many steps each visit
  // timed if a driver visited the cell several times (add_visit()).
  std::vector<double> issue_samples_ms = {}, span_samples_ms = {}, visits = {};
  std::string stopped_by;         // Why sampling ended (end_of_sampling()).
  std::int64_t major_faults = 0;  // pages that came from disk during the timed steps
  bool profiled = false;          // True: a profiler was attached during the timed steps.
  double wall_ms = 0, issue_ms = 0, device_span_ms = 0, device_busy_ms = 0;  // medians
  // With several ranks: the kernel time of collectives in recorded steps, where nothing overlaps
  // them; and the timed span minus the time of all other kernels.
  std::optional<double> communication_ms = {}, exposed_ms = {};
  // The wall time of recorded steps; its excess over wall_ms is the cost of recording.
  double instrumented_wall_ms = 0;
  double compile_ms = 0;                      // The time until the executor was ready.
  std::vector<double> recorded_busy_ms = {};  // The kernel time of each recorded step.
  std::vector<RecordedStep> recorded = {};
  // The time for which other work delayed launches of the step in `spans`; its busy time does not
  // include it.
  double interrupted_ms = 0;
  std::string recorded_by = {};  // The instrument that recorded the steps.
  StepParts parts = {};          // The times of the parts, if Protocol::part_steps is set.
  std::int64_t peak_bytes = 0, predicted_peak_bytes = 0;
  // With ranks in processes: how many of them had the predicted peak, and received the predicted
  // bytes in each recorded step.
  std::optional<std::int64_t> ranks_as_predicted = {};
  // The bytes of leaves in the host's memory, as its allocator counts them.
  std::int64_t host_bytes = 0;
  // The bytes of the planned arena; nullopt if buffers come from the allocator.
  std::optional<std::int64_t> arena_bytes, arena_lower_bound_bytes;
  double allocations_per_step = 0;  // Calls of the device's allocator for each timed step.
  // Memory in use on the device that our allocator did not allocate; nullopt if the system does not
  // report it.
  std::optional<std::int64_t> untracked_bytes;
  std::optional<std::int64_t> outside_bytes;  // likewise
  // Bytes of forward values that are kept for backward, in one micro-batch.
  std::int64_t saved_bytes = 0;
  std::int64_t flops = 0;  // The FLOPs of matrix products.
  std::int64_t launches = 0;
  bool captured = false;  // True: steps were replayed as one graph.
  // The number of kernels, copies and fills in the graph that steps replayed.
  std::optional<std::int64_t> kernels = {};
  double roof_tflops = 0;  // The device's measured ceiling; 0: not known.
  // The cores that other processes kept busy while the ceiling was measured.
  std::optional<double> roof_others_cores = {};
  bool is_asynchronous = false;  // the device computes while the host goes on
  bool computes = true;  // False: the device computes nothing, so times say nothing about speed.
  std::optional<double> loss;  // The loss of the last step; nullopt for inference.

  // The input of attribution: the program; the spans of the recorded step with the median kernel
  // time (device_busy_ms), in which delayed launches are cut to undisturbed_ms(); and the events of
  // the last recorded step.
  Program program;
  DeviceTraits traits;
  std::vector<Span> spans;
  std::int64_t span_ns = 0;  // The time from the first start to the last end in that step.
  std::vector<MemoryEvent> memory_events;
};

// Called before each timed step with the number of steps done and the most that there will be.
using StepObserver = std::function<void(std::size_t done, std::size_t most)>;

// Builds the program, warms up, times steps, then records steps. Running out of memory is a result,
// not an exception; so is a signal to stop, which is checked between steps.
CellResult measure_cell(const DeviceFactory& make_device, const CellSpec& spec,
                        const StopSignal* stop = nullptr, const StepObserver& observe = {});

// Makes the result for a cell whose memory budget no recomputation meets, so that it was not
// started: its predicted peak is the least one that was found.
CellResult cell_beyond_budget(const CellSpec& spec, const BudgetNotMet& error);

// Adds the steps of a later visit of the same cell, which was prepared anew: its timed and recorded
// steps, and the state of host and device around them. Bytes and work stay unchanged. Both results
// must be ok.
void add_visit(CellResult& result, const CellResult& later);

// Makes one visit for a driver (lab/measure/rounds.h). A recomputation budget that cannot be met
// counts as out of memory.
CellResult visit(const DeviceFactory& make_device, const CellSpec& spec, const StopSignal* stop,
                 const StepObserver& observe = {});
std::string label_of(const CellSpec& spec);  // The label of the cell's run.
Json key_of(const CellSpec& spec);  // The key of the cell's run, with the number of its copy.
// Returns the times of the cell's timed steps; empty if the cell failed.
std::vector<double> beside_samples(const CellResult& result);
// Returns the time of a visit relative to other cells: the FLOPs of the cell.
double visit_weight(const CellSpec& spec);
TimedSamples timed_samples(const CellResult& result);

// Returns the joules that the whole device used for each timed step, by its energy counter, which
// is coarse. nullopt: there is no counter, the steps took under half a second together, or the
// result exceeds the device's power limit.
std::optional<double> energy_per_step_j(const CellResult& result);

// Return the columns of `bench`, and a result as a row of them.
std::vector<Column> cell_columns();
std::vector<Json> cell_row(const CellResult& result);

}  // namespace tracestep
