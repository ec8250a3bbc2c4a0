// The cells of the study's steps: which runs each table wants, and the measuring of those of one
// model.
#include <algorithm>
#include <chrono>
#include <numeric>
#include <span>

#include <fmt/format.h>

#include "lab/measure/sampling.h"
#include "lab/study/experiments.h"
#include "spec/axes.h"

namespace tracestep {

namespace {

using Clock = std::chrono::steady_clock;

constexpr int kMostSamples = 30;  // of a visit
constexpr int kRecorded = 3;      // steps of which a whole step's components are recorded

}  // namespace

bool is_same_model(const ModelConfig& a, const ModelConfig& b) {
  return a.name == b.name && a.vocab == b.vocab;
}

std::vector<ModelConfig> models_of(const StudySizes& sizes) {
  std::vector<ModelConfig> out;
  const auto add = [&](const ModelConfig& model) {
    const auto is_it = [&](const ModelConfig& other) { return is_same_model(other, model); };
    if (std::ranges::none_of(out, is_it)) out.push_back(model);
  };
  for (const auto* list : {&sizes.models, &sizes.precise, &sizes.compiled}) {
    for (const ModelConfig& model : *list) add(model);
  }
  for (const RunSpec& step : sizes.profiled) add(step.model);
  add(sizes.scaled);
  std::stable_sort(out.begin() + 1, out.end(), [](const ModelConfig& a, const ModelConfig& b) {
    return parameter_formula(a) < parameter_formula(b);
  });
  return out;
}

bool is_of_first_model(const StudyContext& context, const RunSpec& step) {
  return is_same_model(step.model, context.sizes.models.front());
}

namespace {

// Returns the runs to which the axes of `cells` are applied: one for each of its models, in order.
std::vector<RunSpec> bases_of(const StudyContext& context, const StepCells& cells) {
  const StudySizes& sizes = context.sizes;
  std::vector<RunSpec> out;
  const auto add = [&](std::span<const ModelConfig> models) {
    for (const ModelConfig& m : models) out.push_back({.model = m, .shape = sizes.shape});
  };
  switch (cells.models) {
    case Of::kModels: add(sizes.models); break;
    case Of::kScaled: add({&sizes.scaled, 1}); break;
    case Of::kPrecise: add(sizes.precise); break;
    case Of::kCompiled: add(sizes.compiled); break;
    case Of::kShared: add({&sizes.models.front(), 1}); break;
    case Of::kProfiled: out = sizes.profiled; break;
  }
  if (cells.which == Which::kFirst) out.resize(std::min<std::size_t>(out.size(), 1));
  if (cells.which == Which::kOthers && !out.empty()) out.erase(out.begin());
  for (RunSpec& run : out) run = context.here(run);
  return out;
}

std::vector<RunSpec> expanded(const StudyContext& context, const StepCells& cells,
                              const RunSpec& base) {
  if (cells.more != nullptr) return cells.more(context, base);
  const Axes& axes = cells.axes;
  const auto context_of = [](RunSpec & run) -> auto& {
    return run.shape.context;
  };
  std::vector<Axis<RunSpec>> all;
  const auto add = [&](const auto& values, auto member) {
    if (!values.empty()) all.push_back(axis<RunSpec>(values, member));
  };
  if (axes.has_contexts) add(context.sizes.contexts, context_of);
  add(axes.modes, &RunSpec::mode);
  add(axes.has_precisions ? context.sizes.precisions : axes.precisions, &RunSpec::precision);
  add(axes.ops, &RunSpec::ops);
  add(axes.executors, &RunSpec::executor);
  std::vector<RunSpec> out = product<RunSpec>({base}, all);
  // Primitive ops show how plain framework code runs, so they are not compiled.
  std::erase_if(out, [](const RunSpec& run) {
    return run.ops == Granularity::kPrimitive && run.executor == ExecutorKind::kCompiled;
  });
  return out;
}

std::vector<WantedCell<CellSpec>> wanted_of(const StudyContext& context,
                                            const std::vector<StepCells>& list,
                                            const ModelConfig& model) {
  std::vector<WantedCell<CellSpec>> wanted;
  for (const StepCells& cells : list) {
    for (const RunSpec& base : bases_of(context, cells)) {
      if (!is_same_model(base.model, model)) continue;
      for (const RunSpec& run : expanded(context, cells, base)) {
        // Whole steps are taken apart by component.
        const bool is_whole = cells.recorded > 0 && run.mode == Mode::kStep;
        const Protocol protocol{.warmup = 1,
                                .steps = std::max(context.sizes.steps, kMostSamples),
                                .recorded_steps = is_whole ? kRecorded : cells.recorded};
        wanted.push_back({{run, protocol}, cells.table.empty()});
      }
    }
  }
  return wanted;
}

// Measures the steps of a model in the same rounds, as their times are compared with each other.
void measure_model(StudyContext& context, const std::string& stage,
                   const std::vector<StepCells>& list, const ModelConfig& model,
                   Visits visits = Visits::kRounds) {
  std::vector<WantedCell<CellSpec>> wanted = wanted_of(context, list, model);
  // One rank alone comes last. This process may know its result already, but a new process may not,
  // and the numbers of the other cells must not depend on that.
  std::ranges::stable_partition(
      wanted, [](const WantedCell<CellSpec>& cell) { return cell.spec.step.parallel.is_on(); });
  context.measure(context.stage_of(stage), wanted, context.steps, visits);
}

void measure_steps(StudyContext& context, const ModelConfig& model,
                   Visits visits = Visits::kRounds) {
  measure_model(context, fmt::format("step {} {}", model.name, model.vocab),
                experiment_of(step_part).cells, model, visits);
}

// Estimates the least seconds that the cells of a model need, by the time of the smallest model's
// step, scaled by work; 0: that time is not known.
double wanted_seconds(const StudyContext& context, const ModelConfig& model, Visits visits) {
  constexpr int kRounds = 3, kSamplesOfOne = 6, kBesides = 2;  // besides: warm-up, and recorded
  constexpr double kPreparing = 0.2;
  const bool is_asynchronous = context.machine.traits.has_own_memory();
  const double least = is_asynchronous ? kAsynchronousVisitSeconds : kVisitSeconds;
  const ModelConfig& smallest = context.sizes.models.front();
  RunSpec known{.model = smallest, .shape = context.sizes.shape, .mode = Mode::kStep};
  known = context.here(known);
  const double seconds = context.seconds_of(known), work = visit_weight(CellSpec{known, {}});
  double out = 0;
  for (const auto& cell : each_once(wanted_of(context, experiment_of(step_part).cells, model))) {
    const double step = seconds * visit_weight(CellSpec{cell.spec.step, {}}) / work;
    out += visits == Visits::kOnce
               ? kPreparing + (kSamplesOfOne + kBesides) * step
               : kRounds * (kPreparing + std::max(least, kVisitSamples * step) + kBesides * step);
  }
  return seconds > 0 ? out : 0;
}

// True for models outside `sizes.models`, whose cells are few and slow: they are visited once, with
// the samples of an interval, before all others, which would leave no time for them.
bool is_precise_only(const StudySizes& sizes, const ModelConfig& model) {
  return std::ranges::none_of(
      sizes.models, [&](const ModelConfig& timed) { return is_same_model(timed, model); });
}

}  // namespace

std::vector<RunSpec> runs_in(const StudyContext& context, std::string_view table) {
  std::vector<RunSpec> out;
  std::vector<ModelConfig> models;
  for (const Experiment& experiment : all_experiments()) {
    for (const StepCells& cells : experiment.cells) {
      if (cells.table != table) continue;
      for (const RunSpec& base : bases_of(context, cells)) {
        std::ranges::move(expanded(context, cells, base), std::back_inserter(out));
      }
    }
  }
  for (const RunSpec& run : out) models.push_back(run.model);
  std::ranges::stable_sort(out, {}, [&](const RunSpec& run) {
    return std::ranges::find_if(
               models, [&](const ModelConfig& model) { return is_same_model(model, run.model); }) -
           models.begin();
  });
  return out;
}

void step_part(StudyContext& context) {
  measure_steps(context, models_of(context.sizes).front());
}

void larger_step_part(StudyContext& context) {
  std::vector<ModelConfig> models = models_of(context.sizes);
  models.erase(models.begin());
  const auto is_once = [&](const ModelConfig& model) {
    return is_precise_only(context.sizes, model);
  };
  // Models that are visited once come first, then the others from the largest to the smallest: time
  // that one leaves is there for more rounds of the next.
  std::ranges::reverse(models);
  std::ranges::stable_partition(models, is_once);
  const auto visits_of = [&](const ModelConfig& model) {
    return is_once(model) ? Visits::kOnce : Visits::kRounds;
  };
  // Each model gets the share of the time that its cells want.
  std::vector<double> weights;
  for (const ModelConfig& model : models) {
    weights.push_back(std::max(1.0, wanted_seconds(context, model, visits_of(model))));
  }
  double all = std::accumulate(weights.begin(), weights.end(), 0.0);
  const Clock::time_point end = context.deadline;
  for (std::size_t i = 0; i < models.size(); ++i) {
    const auto left = std::chrono::duration<double>(end - Clock::now());
    context.deadline =
        Clock::now() + std::chrono::duration_cast<Clock::duration>(left * weights[i] / all);
    measure_steps(context, models[i], visits_of(models[i]));
    all -= weights[i];
  }
  context.deadline = end;
}

void measure_shared_steps(StudyContext& context) {
  measure_model(context, "ranks", experiment_of(rank_part).cells, context.sizes.models.front());
}

}  // namespace tracestep
