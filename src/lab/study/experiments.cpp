// The list of the study's experiments: each with the cells that it measures and its share of the
// time, in running order.
#include "lab/study/experiments.h"

#include <algorithm>

namespace tracestep {

namespace {

constexpr int kRecorded = 3;  // steps whose kernels are shown

std::vector<RunSpec> ladder(const StudyContext&, const RunSpec& base) {
  return ladder_runs(base, study_rungs());
}

std::vector<StepCells> step_cells() {
  constexpr auto kStep = Mode::kStep, kBoth = Mode::kForwardBackward, kForward = Mode::kForward,
                 kInference = Mode::kInference;
  constexpr auto kEager = ExecutorKind::kEager, kCompiled = ExecutorKind::kCompiled;
  constexpr auto kAll = Which::kAll;
  const Precision in_fp32, in_bf16{.autocast = DType::kBF16};
  const Granularity in_parts = Granularity::kPrimitive, fused = Granularity::kFused;
  const std::vector<Granularity> both_ops = {in_parts, fused};
  return {
      // Forward, backward and a step; the same in bfloat16; a step in primitive ops, and compiled.
      {"", Of::kModels, kAll, {.modes = {kForward, kBoth, kStep}}},
      {"", Of::kPrecise, kAll, {.modes = {kBoth, kForward}, .precisions = {in_fp32, in_bf16}}},
      {"", Of::kCompiled, kAll, {.modes = {kStep}, .ops = {in_parts}}},
      {"", Of::kCompiled, kAll, {.modes = {kStep}, .executors = {kCompiled}}},
      {"time", Of::kModels, kAll, {.modes = {kStep, kBoth, kForward, kInference}}, 1},
      {"passes", Of::kProfiled, kAll, {.modes = {kInference, kStep}}},  // recorded later
      {"steps", Of::kPrecise, Which::kFirst, {.modes = {kBoth}, .has_precisions = true}, kRecorded},
      {"steps",
       Of::kPrecise,
       Which::kOthers,
       {.modes = {kBoth}, .precisions = {in_fp32, in_bf16}},
       1},
      {"steps", Of::kPrecise, kAll, {.modes = {kForward}, .precisions = {in_fp32, in_bf16}}},
      {"ways",
       Of::kCompiled,
       kAll,
       {.modes = {kForward, kBoth, kStep}, .ops = both_ops, .executors = {kEager, kCompiled}}},
      {"time", Of::kModels, kAll, {.modes = {kStep, kForward}, .ops = {in_parts}}, 1},
      {"ladder", Of::kCompiled, Which::kFirst, {}, 0, ladder},
      {"scaling", Of::kScaled, kAll, {.has_contexts = true, .modes = {kStep, kForward}}, 1},
  };
}

}  // namespace

// Lists the experiments in their order: exact ones, which need no time, those that others build on,
// then cheap before costly ones, as larger models get the time that is left. Time that one does not
// use is shared by all that follow. Profiles come late, as a profiler may slow later steps.
const std::vector<Experiment>& all_experiments() {
  static const std::vector<Experiment> all = {
      {"number formats", 0, 0, number_part},
      {"predictions", 0, 0, plan_part},
      {"bytes of steps, smallest model", 0, 0, first_memory_part},
      {"attention alone",
       0.12,
       0.12,
       attention_part,
       "attention, attention_scaling, attention_ways",
       {},
       true},
      {"time of steps, smallest model", 0.22, 0.05, step_part,
       "cells, granularity, time_by_component@, steps, ways, scaling, ladder, "
       "precision_components, validity",
       step_cells()},
      {"training", 0.06, 0.02, training_part, "training"},
      {"warm-up", 0.04, 0.02, warm_up_part, "warmup", {}, true},
      {"starts, and errors of precisions", 0.10, 0.10, start_part, "ways, steps, ladder"},
      {"one step on many ranks",
       0.12,
       0.01,
       rank_part,
       "ranks, collectives",
       {{"ranks", Of::kShared, Which::kAll, {}, 1, shared_steps}}},
      {"time of steps, larger models",
       0.18,
       0.52,
       larger_step_part,
       "cells, granularity, time_by_component@, steps, ways, scaling, ladder, "
       "precision_components, validity",
       {},
       true},
      {"bytes of steps, larger models", 0.03, 0.04, other_memory_part, "memory"},
      {"kernels of steps", 0.13, 0.12, profile_part,
       "passes, clocks, launch_check, attention@, kinds@"},
      {"more rounds of unsure steps", 0.05, 0.03, more_rounds_part},
      {"review", 0, 0, review_part}};
  return all;
}

const Experiment& experiment_of(void (*run)(StudyContext& context)) {
  return *std::ranges::find(all_experiments(), run, &Experiment::run);
}

std::vector<const Rung*> study_rungs() {
  std::vector<const Rung*> out;
  for (const Rung& rung : all_rungs()) out.push_back(&rung);
  return out;
}

}  // namespace tracestep
