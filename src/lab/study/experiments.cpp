// The list of the study's experiments: each with the cells that it measures and its share of the
// time, in running order; and the run of all of them by the driver.
#include <algorithm>
#include <array>
#include <ctime>
#include <functional>
#include <numeric>

#include <fmt/format.h>

#include "base/error.h"
#include "lab/measure/sampling.h"
#include "lab/measure/statistics.h"
#include "lab/study/study.h"
#include "spec/axes.h"
#include "spec/fields.h"

namespace tracestep {

namespace {

using Clock = std::chrono::steady_clock;

constexpr int kMostSamples = 30;  // of a visit
constexpr int kRecorded = 3;      // steps whose kernels are shown

// --- the list ------------------------------------------------------------------------------------

// The models of StudySizes, or its profiled steps; kAny: every model of these.
enum class Of { kModels, kScaled, kPrecise, kCompiled, kProfiled, kShared };
enum class Which { kAll, kFirst, kOthers };  // of these

// The values of each axis, the first of which varies slowest; none: as usual.
struct Axes {
  bool has_contexts = false;  // those of the sizes
  std::vector<Mode> modes = {};
  bool has_precisions = false;  // those of the sizes
  std::vector<Precision> precisions = {};
  std::vector<Granularity> ops = {};
  std::vector<ExecutorKind> executors = {};
};

// The steps that a table shows of each of some models.
struct StepCells {
  std::string_view table;  // empty: what the first screen compares, in more rounds than others
  Of models;
  Which which;
  Axes axes;
  int recorded = 0;  // steps whose kernels are recorded
  std::vector<RunSpec> (*more)(const StudyContext&, const RunSpec& base) = nullptr;  // instead
};

struct Experiment {
  const char* name;
  double share;      // of the time; 0: it is exact, and is never left out
  double gpu_share;  // the same where a device has its own memory: larger models, no ranks here
  void (*run)(StudyContext& context);
  const char* tables = "";            // that lack rows where it had no time
  std::vector<StepCells> cells = {};  // steps; where time is short the last ones are left out
  bool has_cells = !cells.empty();    // which another process can measure one by one
};

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
      {"", Of::kPrecise, kAll, {.modes = {kBoth}, .precisions = {in_fp32, in_bf16}}},
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

// Exact experiments need no time and come first, then those that others need, and what is cheap
// before what is not: of larger models is what the others leave of the time. All that follow share
// the time that one does not use. Profiles come last, since a profiler may slow what follows it.
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
      {"review", 0, 0, review_part}};
  return all;
}

const std::vector<StepCells>& cells_of(void (*run)(StudyContext& context)) {
  return std::ranges::find(all_experiments(), run, &Experiment::run)->cells;
}

// --- its cells -----------------------------------------------------------------------------------

bool is_same_model(const ModelConfig& a, const ModelConfig& b) {
  return a.name == b.name && a.vocab == b.vocab;
}

// Every model whose steps are timed, the smallest first.
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

// The runs that cells vary: one for each of their models, in their order.
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
  // Composites in parts are there as plain framework code runs them.
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

// Measures the steps of a model: they are held against each other, in the same rounds.
void measure_model(StudyContext& context, const std::string& stage,
                   const std::vector<StepCells>& list, const ModelConfig& model,
                   Visits visits = Visits::kRounds) {
  std::vector<WantedCell<CellSpec>> wanted = wanted_of(context, list, model);
  // One rank alone may be known by now, to this process but to no other one: the numbers of the
  // others must not depend on it.
  std::ranges::stable_partition(
      wanted, [](const WantedCell<CellSpec>& cell) { return cell.spec.step.parallel.is_on(); });
  context.measure(context.stage_of(stage), wanted, context.steps, visits);
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

namespace {

void measure_steps(StudyContext& context, const ModelConfig& model,
                   Visits visits = Visits::kRounds) {
  measure_model(context, fmt::format("step {} {}", model.name, model.vocab), cells_of(step_part),
                model, visits);
}

// Steps of these are seconds long and few: they are visited once, with the samples of an interval,
// before all others, which would leave no time for them.
bool is_precise_only(const StudySizes& sizes, const ModelConfig& model) {
  return std::ranges::none_of(
      sizes.models, [&](const ModelConfig& timed) { return is_same_model(timed, model); });
}

}  // namespace

void step_part(StudyContext& context) {
  measure_steps(context, models_of(context.sizes).front());
}

void larger_step_part(StudyContext& context) {
  std::vector<ModelConfig> models = models_of(context.sizes);
  models.erase(models.begin());
  const auto is_once = [&](const ModelConfig& model) {
    return is_precise_only(context.sizes, model);
  };
  std::ranges::stable_partition(models, is_once);
  // Each has as much of the time as it has of the cells; of those that are visited once, cells are
  // few and long.
  constexpr double kLong = 6;
  std::vector<double> weights;
  for (const ModelConfig& model : models) {
    const auto cells = each_once(wanted_of(context, cells_of(step_part), model));
    weights.push_back(static_cast<double>(cells.size()) * (is_once(model) ? kLong : 1.0));
  }
  double all = std::accumulate(weights.begin(), weights.end(), 0.0);
  const Clock::time_point end = context.deadline;
  for (std::size_t i = 0; i < models.size(); ++i) {
    const auto left = std::chrono::duration<double>(end - Clock::now());
    context.deadline =
        Clock::now() + std::chrono::duration_cast<Clock::duration>(left * weights[i] / all);
    measure_steps(context, models[i], is_once(models[i]) ? Visits::kOnce : Visits::kRounds);
    all -= weights[i];
  }
  context.deadline = end;
}

void measure_shared_steps(StudyContext& context) {
  measure_model(context, "ranks", cells_of(rank_part), context.sizes.models.front());
}

// --- the driver ----------------------------------------------------------------------------------

double StudyContext::seconds_left() const {
  if (driver().is_stopped()) return 0;
  return std::chrono::duration<double>(deadline - Clock::now()).count();
}

bool StudyContext::has_time_for(double seconds) {
  const bool has_time = seconds_left() > std::max(0.0, seconds);
  ++(has_time ? begun : left_out);
  return has_time;
}

double StudyContext::seconds_of(const RunSpec& step) const {
  const auto of = [&](const RunSpec& run) {
    const CellResult* cell = result_of(CellSpec{run, {}}, steps);
    return cell != nullptr && cell->status == Status::kOk ? max_of(cell->samples_ms) * 1e-3 : 0.0;
  };
  if (const double known = of(step); known > 0) return known;
  double same_mode = 0, other_mode = 0;
  for (const RunSpec& run : runs_in(*this, "time")) {
    if (!is_same_model(run.model, step.model)) continue;
    if (run.mode == step.mode) same_mode = std::max(same_mode, of(run));
    if (other_mode > 0 || run.mode == step.mode) continue;
    other_mode = of(run) * visit_weight(CellSpec{step, {}}) / visit_weight(CellSpec{run, {}});
  }
  return same_mode > 0 ? same_mode : other_mode;
}

const Ceilings& StudyContext::ceilings() {
  if (!known_ceilings) {
    known_ceilings = Ceilings{};
    if (machine.ceilings) {
      known_ceilings = driver().besides<Ceilings>("ceilings", full_key(here({})),
                                                  [&] { return machine.ceilings(here({})); });
    }
  }
  return *known_ceilings;
}

RunSpec StudyContext::here(RunSpec run) const {
  run.place = machine.place;
  run.seed = machine.seed;
  return run;
}

namespace {

// The end of the stages of cells at a batch and context.
std::string words_of(const BatchShape& shape) {
  return fmt::format(" {}x{}", shape.batch, shape.context);
}

}  // namespace

std::string StudyContext::stage_of(std::string_view what) const {
  return fmt::format("{}{}", what, words_of(sizes.shape));
}

std::vector<CellResult> StudyContext::measured(std::span<const RunSpec> runs) const {
  std::vector<CellResult> out;
  for (const RunSpec& run : runs) {
    if (const CellResult* cell = result_of(CellSpec{run, {}}, steps)) out.push_back(*cell);
  }
  return out;
}

template <class Spec, class Result>
void StudyContext::measure(const std::string& stage, const std::vector<WantedCell<Spec>>& cells,
                           std::map<std::string, Result>& results, Visits visits) {
  // The interval of nine medians leaves the least and the most of them out, so that one visit
  // beside other work does not widen it.
  constexpr int kMostRounds = 12, kRoundsOfLeads = 9;
  RoundLimits limits{.most = kMostRounds,
                     .seconds = seconds_left(),
                     .seed = machine.seed,
                     .least_of_leads = kRoundsOfLeads};
  constexpr int kSamplesOfOne = 6;  // which an interval of 95 % needs
  if (visits == Visits::kOnce) limits.least = limits.least_of_leads = 1;
  if (machine.visits > 0) limits.least = limits.least_of_leads = limits.most = machine.visits;
  std::vector<Spec> specs;
  for (const WantedCell<Spec>& cell : each_once(cells)) {
    if (result_of(cell.spec, results) != nullptr) continue;
    limits.leads += cell.is_lead ? 1 : 0;
    specs.push_back(cell.spec);
    Protocol& protocol = specs.back().protocol;
    if (visits == Visits::kOnce) {
      protocol.steps = kSamplesOfOne;
    } else {
      protocol.visit_seconds = kVisitSeconds;
    }
  }
  if (driver().is_child()) {
    limits = {.least = 1, .most = 1};
  } else if (limits.seconds <= 0) {
    left_out += static_cast<int>(specs.size());
    return;
  }
  int last = -1;
  driver().on_visit = [&](const std::string& label, int round) {
    if (std::exchange(last, round) == round) return;  // one line a round
    announce(fmt::format("round {} of times, {} and others", round, label));
  };
  for (std::optional<Result>&result : driver().visit_cells<Result>(
           stage, specs, limits,
           [&](const Spec&spec, const auto&) {
             return visit(machine.make_device, spec, driver().stop_signal());
           },
           machine.in_processes)) {
    ++(result ? begun : left_out);
    if (!result) continue;
    if constexpr (std::same_as<Result, CellResult>) driver().complete(*result);
    const std::string key = key_of(result->spec).dump();
    results[key] = *std::move(result);
  }
  driver().on_visit = {};
}
template void StudyContext::measure(const std::string&, const std::vector<WantedCell<CellSpec>>&,
                                    std::map<std::string, CellResult>&, Visits);
template void StudyContext::measure(const std::string&,
                                    const std::vector<WantedCell<AttentionSpec>>&,
                                    std::map<std::string, AttentionResult>&, Visits);

std::vector<const Rung*> study_rungs() {
  std::vector<const Rung*> out;
  for (const Rung& rung : all_rungs()) out.push_back(&rung);
  return out;
}

bool is_of_first_model(const StudyContext& context, const RunSpec& step) {
  return is_same_model(step.model, context.sizes.models.front());
}

namespace {

double share_of(void (*run)(StudyContext& context)) {
  return std::ranges::find(all_experiments(), run, &Experiment::run)->share;
}

// The sizes, at the largest shape down to that of a quick study at which the cells of the smallest
// model fit into their share of the time, by what one visit takes now: a small step in many rounds
// says more than a large one in few, and on a busy machine a longer study answers at least what a
// quick one does. A process that measures for another one takes the shape that it is asked for.
StudySizes fitted(const StudyMachine& machine, StudySizes sizes, double seconds) {
  // The smallest model's cells take as long as so many visits of its step: 16 in three rounds, and
  // the leads in six more.
  constexpr int kVisits = 16 * 3 + 6 * 6;
  const BatchShape quick = quick_study_sizes().shape, usual = sizes.shape;
  const auto tokens = [](const BatchShape& shape) { return shape.batch * shape.context; };
  const bool is_quick = tokens(usual) <= tokens(quick);
  if (sizes.is_shape_fixed || is_quick || machine.traits.has_own_memory()) return sizes;
  const std::array shapes{usual, BatchShape{usual.batch, usual.context / 2},
                          BatchShape{quick.batch, usual.context / 2}, quick};
  const BatchShape* chosen = nullptr;
  Driver& driver = *machine.driver;
  if (driver.is_child()) {
    chosen = std::ranges::find_if(shapes, [&](const BatchShape& shape) {
      return driver.asked().find(words_of(shape) + ":") != std::string::npos;
    });
    if (chosen == shapes.end()) chosen = &shapes.front();
  }
  CellSpec pilot{{.model = sizes.models.front(), .shape = usual, .mode = Mode::kStep},
                 {.warmup = 1, .steps = kVisitSamples, .recorded_steps = 0}};
  pilot.step.place = machine.place;
  pilot.step.seed = machine.seed;
  const auto largest = [&] {
    const Clock::time_point start = Clock::now();
    visit(machine.make_device, pilot, driver.stop_signal());
    const double taken = std::chrono::duration<double>(Clock::now() - start).count();
    const double per_token = kVisits * taken / static_cast<double>(tokens(usual));
    for (const BatchShape& shape : shapes) {
      if (per_token * static_cast<double>(tokens(shape)) <= seconds) return shape;
    }
    return quick;
  };
  const BatchShape shape =
      chosen != nullptr ? *chosen : driver.besides<BatchShape>("shape", full_key(pilot), largest);
  if (tokens(shape) < tokens(usual)) at_shape(shape, sizes);
  return sizes;
}

Table part_table() {
  Table table{.name = "parts", .title = "What ran, and for how long"};
  table.columns = {text_column("part"),
                   real_column("seconds", "time", "s", 1),
                   real_column("computed_s", "of processors", "s", 1,
                               "time of all threads of the study's process"),
                   int_column("left_out", "left out", "cells for which there was no time"),
                   text_column("status", "", "done, in part, left out or out of memory"),
                   text_column("detail", "", "of what ran out of memory"),
                   data_only(text_column("tables", "", "that lack rows where it had no time"))};
  return table;
}

// Runs an experiment and adds its row. Its results until it runs out of memory are kept, and the
// others still run.
void run_one(const Experiment& experiment, StudyContext& context, Table& parts) {
  const Clock::time_point begin = Clock::now();
  const std::clock_t own = std::clock();
  context.begun = context.left_out = 0;
  Json lack;
  try {
    experiment.run(context);
  } catch (const OutOfMemory& error) {
    context.announce(fmt::format("{} ran out of memory, and is left out", experiment.name));
    lack = error.text();
  }
  parts.add_row({experiment.name, std::chrono::duration<double>(Clock::now() - begin).count(),
                 static_cast<double>(std::clock() - own) / CLOCKS_PER_SEC, context.left_out,
                 !lack.is_null()         ? "out of memory"
                 : context.left_out == 0 ? "done"
                 : context.begun > 0     ? "in part"
                                         : "left out",
                 lack, experiment.tables});
}

}  // namespace

StudyReport run_study(const StudyMachine& machine, const StudySizes& asked, double budget_seconds,
                      const std::function<void(const std::string& what)>& announce) {
  const Clock::time_point start = Clock::now();
  const auto passed = [&] { return std::chrono::duration<double>(Clock::now() - start).count(); };
  const bool is_gpu = machine.traits.has_own_memory();
  const auto share_of_time = [&](const Experiment& experiment) {
    return is_gpu ? experiment.gpu_share : experiment.share;
  };
  const StudySizes sizes = fitted(machine, asked, share_of(step_part) * budget_seconds);
  StudyContext context{.machine = machine, .sizes = sizes, .announce = announce};
  Table parts = part_table();
  std::vector<Experiment> all = all_experiments();
  const bool has_ranks = sizes.parallel.is_on(), has_larger = models_of(sizes).size() > 1;
  std::erase_if(all, [&](const Experiment& experiment) {
    const bool is_asked = (experiment.run != rank_part || has_ranks) &&
                          (experiment.run != larger_step_part || has_larger);
    return !is_asked || (machine.driver->is_child() && !experiment.has_cells);
  });
  // Where only the smallest steps fit, most of what larger ones would take is theirs.
  const bool is_slow = sizes.shape.context < asked.shape.context &&
                       sizes.shape.context == quick_study_sizes().shape.context;
  double of_larger = has_larger ? 0.0 : share_of(larger_step_part);
  for (Experiment& experiment : all) {
    experiment.share = share_of_time(experiment);
    if (!is_slow || experiment.run != larger_step_part) continue;
    constexpr double kStill = 0.2;
    of_larger = (1 - kStill) * experiment.share;
    experiment.share *= kStill;
  }
  for (Experiment& experiment : all) {
    if (experiment.run == step_part) experiment.share += of_larger;
  }
  double shares = 0;  // of those that have not run yet
  for (const Experiment& experiment : all) shares += experiment.share;
  constexpr double kReport =
      2.5;              // seconds of one thread for tables, sentences, pages and pictures
  double slowness = 1;  // how long such a second takes beside what else runs here
  for (const Experiment& experiment : all) {
    const double before = passed();
    const std::clock_t own = std::clock();
    const double report = std::min(kReport * slowness, budget_seconds / 4);
    const double left = std::max(0.0, budget_seconds - passed() - report);
    const double seconds = experiment.share > 0 ? left * experiment.share / shares : 0;
    context.deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                          std::chrono::duration<double>(seconds));
    shares -= experiment.share;
    run_one(experiment, context, parts);
    const double computed = static_cast<double>(std::clock() - own) / CLOCKS_PER_SEC;
    if (experiment.share <= 0)
      slowness = std::max(slowness, (passed() - before) / std::max(computed, 1e-3));
  }
  if (context.driver().is_child()) return {};
  if (sizes.shape.context != asked.shape.context) {
    parts.notes.push_back(fmt::format(
        "steps are of {} × {} tokens in place of {} × {}: by what one visit took, there "
        "was no time for more",
        sizes.shape.batch, sizes.shape.context, asked.shape.batch, asked.shape.context));
  }
  std::vector<StudySection>& sections = context.sections;
  sections.push_back(section("parts", {std::move(parts)},
                             {{"budget", fmt::format("{:.1f}", budget_seconds / 60.0)},
                              {"taken", fmt::format("{:.1f}", passed() / 60.0)}}));
  return answered(in_reading_order(std::move(sections)));
}

}  // namespace tracestep
