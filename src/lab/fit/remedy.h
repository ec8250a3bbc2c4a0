// The changes that may make a step fit, what each costs besides time, and a way to make it fit.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lab/fit/step_figures.h"
#include "planning/device_traits.h"
#include "run/run_spec.h"

namespace tracestep {

// Ranks the cost of a change besides time. The severity of a set is that of its severest change.
enum class ChangeSeverity : std::uint8_t {
  kSameNumbers,     // updates inside backward, recomputation, the optimizer in the host's memory
  kOtherRoundings,  // sums in another order: fused ops, flash attention, the loss in chunks
  kOtherPrecision,  // products in bfloat16
  kOtherStates,     // AdamW's states in bfloat16
  kCodedStates,     // AdamW's states in 8 bits
  kOtherTask,       // a smaller batch, everything in bfloat16, a shorter context, adapters alone
};
std::string_view name_of(ChangeSeverity severity);  // "same numbers", "another task"

// A value that a field may take instead of the one asked for.
struct StepChange {
  ChangeSeverity severity;
  std::function<void(RunSpec&)> apply;
};
// The values of one field; none of them: as asked for.
using Choices = std::vector<StepChange>;

// Places the optimizer's states in the host's memory, beside what is there.
void offload_optimizer(RunSpec& step);

// The fields that may change without another task, each with its choices for all layers alike.
std::vector<Choices> choices_of(const RunSpec& step, const DeviceTraits& traits);

// True if parameters are in a narrow type, and so is everything else that a step stores.
bool is_pure(const Precision& precision);
// True if a step computes blocks again, one by one or in groups.
bool is_of_blocks(const Recomputation& choice);
// True if the step recomputes as a budget for its peak asks.
bool has_budget(const RunSpec& step);

// A changed step that is to fit, with its figures.
struct Remedy {
  RunSpec step = {};
  // Parts of the batch, one after the other, that add up their gradients (train --accumulate).
  std::int64_t micro_batches = 1;
  ChangeSeverity severity = ChangeSeverity::kSameNumbers;
  // The fields that differ from the step as asked, with the value as its flag takes it.
  std::vector<std::pair<std::string, std::string>> changes = {};
  std::string what = {};     // "batch 4 → 2"
  std::string command = {};  // flags that differ: "--batch 2"
  StepFigures figures = {};
  // Per token, relative to the original step: 1.0 is unchanged.
  double flops_ratio = 1.0, moved_ratio = 1.0, kernels_ratio = 1.0, time_ratio = 1.0;

  bool keeps_task() const { return severity != ChangeSeverity::kOtherTask; }
};

// The step of every micro-batch but the first; the step itself if it is not divided.
RunSpec repeated_part(const Remedy& remedy);
// The command that runs it.
std::string command_of(const Remedy& remedy);

// States if a training step may be computed in micro-batches.
enum class BatchDivision : std::uint8_t {
  kNever,
  kIfNeeded,  // if nothing else keeps its task without lower precision or other states
  kFreely,    // wherever that is faster
};

inline constexpr double kUsualMargin = 0.05;

// The progress of a search. The cost of the sets that are left is unknown: a bound rules out most.
struct WeighedSets {
  std::int64_t done = 0;  // looked at, left out, or put off behind others that fit
  std::int64_t all = 0;   // there are so far
};

struct FitQuestion {
  RunSpec step;
  DeviceTraits traits;
  std::int64_t limit_bytes = 0;
  double margin = kUsualMargin;           // of the limit, that a remedy leaves free
  const Predictor* times = nullptr;       // nullptr: times are modelled with rounded rates
  std::optional<StepFigures> asked = {};  // of `step`, where they are known
  // Called before each step that is tried.
  std::function<void(const std::string& trying, const WeighedSets& sets)> progress = {};
  std::vector<Parallel> parallels = {};  // how ranks may share the step; empty: as asked
  BatchDivision division = BatchDivision::kNever;
  bool is_of_task_alone = false;  // nothing is said where no remedy keeps the task

  // Bytes that a remedy may hold: the limit less the margin.
  std::int64_t within_bytes() const {
    return limit_bytes - static_cast<std::int64_t>(margin * static_cast<double>(limit_bytes));
  }
};

constexpr double kAlike = 0.02;  // relative: times that a person does not tell apart

bool is_within(const StepFigures& figures, std::int64_t bytes);
// Peaks from few layers may be off by what an arena cannot fill, less than a hundredth: the first
// says whether one may fit then, the second whether it fits in any case.
bool may_fit(std::int64_t sketched_peak, std::int64_t bytes);
bool surely_fits(std::int64_t sketched_peak, std::int64_t bytes);

// Gives remedies their words and figures, and remembers the least peak.
class Judge {
 public:
  // `question` must outlive it.
  explicit Judge(const FitQuestion& question);

  const FitQuestion& question() const { return q_; }
  const StepFigures& asked() const { return asked_; }
  FiguresOfSteps& figures() { return figures_; }

  // Derives changes, words and flags from the step.
  void describe(Remedy& r) const;
  // Describes the remedy, and takes figures from programs of few layers.
  void sketch(Remedy& r);
  // Takes the figures of the whole program.
  void look_at(Remedy& r);
  // Describes the remedy; its peak by FiguresOfSteps::nested_peak().
  std::optional<std::int64_t> nested_peak(Remedy& r);

  void reach(const WeighedSets& sets) { sets_ = sets; }
  // The remedy that progress names from now on.
  void answer(const Remedy& first) { first_ = first; }
  // The remedy with the least peak that keeps the task, by whole programs.
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

// For each kind of change of the task (batch, everything narrow, context, adapters), the fastest
// remedy for a token, built on one of `from`; several changes only where no single one is enough.
std::vector<Remedy> of_another_task(Judge& judge, const std::vector<Remedy>& from);
// The fewest sequences of a replica whose rows its ranks can share.
std::int64_t least_sequences(const RunSpec& step);
// The remedy with so many sequences for each replica, or as many more as its ranks need.
Remedy with_batch(Judge& judge, const Remedy& remedy, std::int64_t sequences);

}  // namespace tracestep
