// Changes that may make a step fit into memory, what each costs besides time, and sets of them that
// do make it fit.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/enum_words.h"
#include "lab/fit/step_figures.h"
#include "lab/report/fields.h"
#include "planning/device_traits.h"
#include "run/run_spec.h"

namespace tracestep {

// The flags that describe a step where it differs from every command's defaults. On a CPU they
// include the threads, on which the peak depends. Fields in `left_out` are omitted.
std::string flags_of(const RunSpec& step, const std::set<std::string>& left_out = {});
// "tracestep bench --size small … --recompute blocks": the command that times this step.
std::string command_of(const RunSpec& step);
// Batch, context and precision of a step, for the sentence above a table.
Fields<RunSpec> task_fields();

// How much a change alters the result of the training, from least to most. A set has the severity
// of its severest change.
enum class ChangeSeverity : std::uint8_t {
  // Bit-identical results: updates inside backward, recomputation, the optimizer in host memory.
  kSameNumbers,
  kOtherRoundings,  // Sums in another order: fused ops, flash attention, the loss in chunks.
  kOtherPrecision,  // Products in bfloat16, sums of micro-batches' gradients in 16 bits.
  kOtherStates,     // AdamW's states in bfloat16
  kCodedStates,     // AdamW's states in 8 bits
  kOtherTask,       // a smaller batch, everything in bfloat16, a shorter context, adapters alone
};
TRACESTEP_WORDS(ChangeSeverity, "same numbers", "other roundings", "lower precision",
                "other states", "states in 8 bits", "another task");

// A change to a step: a value of a field instead of the one asked for, and its severity.
struct StepChange {
  ChangeSeverity severity;
  std::function<void(RunSpec&)> apply;
};
// The changes to choose from for one field; empty: the field keeps the value asked for.
using Choices = std::vector<StepChange>;

// Places the optimizer's states in the host's memory, besides what the step has placed there
// already.
void offload_optimizer(RunSpec& step);

// Returns, for each field that may change without changing the task, the changes to choose from. A
// change applies to all layers.
std::vector<Choices> choices_of(const RunSpec& step, const DeviceTraits& traits);

// True if parameters and everything else that a step stores are of a 16-bit type.
bool is_pure(const Precision& precision);
// True if a step recomputes whole blocks, one by one or in groups.
bool is_of_blocks(const Recomputation& choice);
// True if the step chooses its recomputation by a budget for its peak (--recompute budget=…).
bool has_budget(const RunSpec& step);

// A step with changes, by which it is to fit, and its figures.
struct Remedy {
  RunSpec step = {};
  // Parts of the batch, one after the other, that add up their gradients (train --accumulate).
  std::int64_t micro_batches = 1;
  ChangeSeverity severity = ChangeSeverity::kSameNumbers;
  // The fields that differ from the step as asked, with the value as its flag takes it.
  std::vector<std::pair<std::string, std::string>> changes = {};
  std::string what = {};  // "batch 4 → 2"
  // The flags in which its command differs from the step as asked: "--batch 2".
  std::string command = {};
  StepFigures figures = {};
  // Per token, relative to the step as asked: 1.0 is unchanged.
  double flops_ratio = 1.0, moved_ratio = 1.0, kernels_ratio = 1.0, time_ratio = 1.0;

  bool keeps_task() const { return severity != ChangeSeverity::kOtherTask; }
};

// Returns the run of every micro-batch but the first; the step itself if its batch is not divided.
RunSpec repeated_part(const Remedy& remedy);
// Returns the command that runs the remedy: train if it has micro-batches, bench otherwise.
std::string command_of(const Remedy& remedy);

// Whether a search may divide the batch into micro-batches.
enum class BatchDivision : std::uint8_t {
  kNever,
  // Only if no other set keeps the task without lower precision or other optimizer states.
  kIfNeeded,
  kFreely,  // Wherever micro-batches are faster.
};

inline constexpr double kUsualMargin = 0.05;

// The progress of a search, in sets of changes. How long the remaining sets take is not known,
// because a bound rules out most of them.
struct WeighedSets {
  std::int64_t done = 0;  // Sets that were examined, ruled out, or postponed because others fit.
  std::int64_t all = 0;   // Sets that were found up to now.
};

struct FitQuestion {
  RunSpec step;
  DeviceTraits traits;
  std::int64_t limit_bytes = 0;
  double margin = kUsualMargin;           // The share of the limit that a remedy must leave free.
  const Predictor* times = nullptr;       // nullptr: times are modelled with rounded rates
  std::optional<StepFigures> asked = {};  // The figures of `step`, if they are known.
  // Called before each step that is tried.
  std::function<void(const std::string& trying, const WeighedSets& sets)> progress = {};
  // The ways in which ranks may share the step; empty: only the way as asked.
  std::vector<Parallel> parallels = {};
  BatchDivision division = BatchDivision::kNever;
  bool is_of_task_alone = false;  // True: remedies that change the task are not looked for.

  // Bytes that a remedy may hold: the limit less the margin.
  std::int64_t within_bytes() const {
    return limit_bytes - static_cast<std::int64_t>(margin * static_cast<double>(limit_bytes));
  }
};

constexpr double kAlike = 0.02;  // Times that differ by less than this share count as equal.

bool is_within(const StepFigures& figures, std::int64_t bytes);
// A sketched peak may be off by the gaps of an arena, less than 1 %. may_fit() is true if the exact
// peak may be within `bytes`, surely_fits() if it is in any case.
bool may_fit(std::int64_t sketched_peak, std::int64_t bytes);
bool surely_fits(std::int64_t sketched_peak, std::int64_t bytes);

// Fills in descriptions and figures of remedies, and remembers the remedy with the least peak.
class Judge {
 public:
  // Judges steps for a question; `question` must outlive this.
  explicit Judge(const FitQuestion& question);

  const FitQuestion& question() const { return q_; }
  const StepFigures& asked() const { return asked_; }
  FiguresOfSteps& figures() { return figures_; }

  // Fills in the changes, words and flags of a remedy from its step.
  void describe(Remedy& r) const;
  // Describes a remedy (describe()), and estimates its figures from programs with few layers.
  void sketch(Remedy& r);
  // Computes the figures from the whole program.
  void look_at(Remedy& r);
  // Describes a remedy, and returns the peak that FiguresOfSteps::nested_peak() gives, or nullopt.
  std::optional<std::int64_t> nested_peak(Remedy& r);

  void reach(const WeighedSets& sets) { sets_ = sets; }
  // Sets the remedy that progress reports name.
  void answer(const Remedy& first) { first_ = first; }
  // The remedy with the least peak among those that keep the task, by whole programs.
  const std::optional<Remedy>& least() const { return least_; }

 private:
  void say(const Remedy& tried) const;
  void take_figures(Remedy& r, const StepFigures& figures) const;

  const FitQuestion& q_;
  FiguresOfSteps figures_;
  StepFigures asked_;
  std::optional<Remedy> first_, least_;
  WeighedSets sets_;
};

// For each kind of change of the task (batch, everything in 16 bits, context, adapters), the remedy
// with the least time per token, built on one of `from`. Several such changes are combined only if
// no single one is enough.
std::vector<Remedy> of_another_task(Judge& judge, const std::vector<Remedy>& from);
// The least number of sequences of a replica at which its ranks can share the rows.
std::int64_t least_sequences(const RunSpec& step);
// The remedy with this many sequences for each replica, raised to what its ranks can share.
Remedy with_batch(Judge& judge, const Remedy& remedy, std::int64_t sequences);

}  // namespace tracestep
