// Measures a cell of a benchmark (a model, a mode, a device): its times by four clocks, its bytes.
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
  int copy = 1;  // of the same cell, measured as another one: what two copies differ by is noise
};

// A step that was recorded: its kernels, and the time for which other work held up single launches.
struct RecordedStep {
  std::int64_t span_ns = 0, wall_ns = 0;  // first kernel's start to last one's end; the call's
  std::vector<Span> spans = {};
  double interrupted_ms = 0;

  double busy_ms() const { return busy_ms_of(spans); }
};

struct CellResult {
  CellSpec spec;
  std::string device;
  Status status = Status::kOk;
  std::string detail;                     // why it is out of memory
  Lack lack;                              // of what memory
  DeviceFacts facts_before, facts_after;  // around the timed steps
  HostAround host;                        // around these and the warm-up
  std::string choices;                    // Device::choices()
  std::int64_t parameters = 0;
  std::vector<double> samples_ms, warmup_ms;
  // Samples of the same steps by the clocks beside the wall; and how many steps each visit timed,
  // where a driver visited the cell several times (add_visit()).
  std::vector<double> issue_samples_ms = {}, span_samples_ms = {}, visits = {};
  std::string stopped_by;         // end_of_sampling()
  std::int64_t major_faults = 0;  // pages that came from disk during the timed steps
  bool profiled = false;          // a profiler listened to them
  double wall_ms = 0, issue_ms = 0, device_span_ms = 0, device_busy_ms = 0;  // medians
  // With several ranks: the kernels of collectives in recorded steps, where nothing runs beside
  // them; and the timed span less the kernels of everything else.
  std::optional<double> communication_ms = {}, exposed_ms = {};
  double instrumented_wall_ms = 0;  // of recorded steps: beside wall_ms, what recording costs
  double compile_ms = 0;            // until the executor was ready
  std::vector<double> recorded_busy_ms = {};  // kernels' time of each recorded step
  std::vector<RecordedStep> recorded = {};
  // Time for which other work held up launches of the step in `spans`; it is not in its busy time.
  double interrupted_ms = 0;
  std::string recorded_by = {};  // the instrument of the recorded steps
  StepParts parts = {};          // with Protocol::part_steps
  std::int64_t peak_bytes = 0, predicted_peak_bytes = 0;
  std::int64_t host_bytes = 0;  // leaves in the host's memory, by its allocator
  // Bytes of the planned arena; none where buffers come from the allocator.
  std::optional<std::int64_t> arena_bytes, arena_lower_bound_bytes;
  double allocations_per_step = 0;  // calls of the device's allocator while steps were timed
  std::optional<std::int64_t> untracked_bytes;  // nullopt where the system does not say
  std::optional<std::int64_t> outside_bytes;    // likewise
  std::int64_t saved_bytes = 0;  // forward values kept for backward, of one micro-batch
  std::int64_t flops = 0;        // of matrix products
  std::int64_t launches = 0;
  bool captured = false;                         // steps were replayed as one piece of work
  std::optional<std::int64_t> kernels = {};      // of that: kernels, copies and fills
  double roof_tflops = 0;                        // the device's highest rate; 0: not known
  std::optional<double> roof_others_cores = {};  // kept busy by others while it was measured
  bool is_asynchronous = false;                  // the device computes while the host goes on
  bool computes = true;        // false: nothing was computed, so times say nothing of speed
  std::optional<double> loss;  // of the last step; none for inference

  // The input of attribution: the program, the spans of the recorded step whose kernels take the
  // median time, device_busy_ms, held-up launches cut to undisturbed_ms(), and the events of the
  // last one.
  Program program;
  DeviceTraits traits;
  std::vector<Span> spans;
  std::int64_t span_ns = 0;  // first start to last end of that step
  std::vector<MemoryEvent> memory_events;
};

// Called before each timed step with how many are done, and how many there will be at most.
using StepObserver = std::function<void(std::size_t done, std::size_t most)>;

// Builds, warms up, times, then records. Out of memory is a result, not an exception; so is a
// signal to stop, which is looked at between steps.
CellResult measure_cell(const DeviceFactory& make_device, const CellSpec& spec,
                        const StopSignal* stop = nullptr, const StepObserver& observe = {});

// A cell that was not begun, because it is out of memory whatever it computes again: its predicted
// peak is the least one.
CellResult cell_beyond_budget(const CellSpec& spec, const BudgetNotMet& error);

// Adds a later visit of the same cell, prepared anew: its timed and recorded steps, and what the
// host and the device say of the time in which they were taken. Bytes and work stay as they are.
// Both have to be ok.
void add_visit(CellResult& result, const CellResult& later);

// Runs a visit of a driver (lab/measure/rounds.h). A budget of recomputation that nothing meets
// counts as out of memory, too.
CellResult visit(const DeviceFactory& make_device, const CellSpec& spec, const StopSignal* stop,
                 const StepObserver& observe = {});
std::string label_of(const CellSpec& spec);                    // of its run
Json key_of(const CellSpec& spec);                             // of its run, and which copy
std::vector<double> beside_samples(const CellResult& result);  // of its steps, if it is ok
double visit_weight(const CellSpec& spec);                     // FLOPs
TimedSamples timed_samples(const CellResult& result);

// Joules that the whole device used for a timed step, by its coarse counter; nullopt: it has none,
// the steps took under half a second together, or that exceeds the device's power limit.
std::optional<double> energy_per_step_j(const CellResult& result);

// The columns of `bench`, and a result as a row of them.
std::vector<Column> cell_columns();
std::vector<Json> cell_row(const CellResult& result);

}  // namespace tracestep
