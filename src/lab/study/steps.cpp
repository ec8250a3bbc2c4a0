// The steps that the study's tables show, and their measurement in rounds: a cell that several
// tables show is measured once.
#include <algorithm>

#include "lab/study/study.h"

namespace tracestep {
namespace {

constexpr int kMostSamples = 30;  // of a visit
constexpr int kRecorded = 3;      // steps whose kernels are shown
constexpr Precision kAutocast{.autocast = DType::kBF16};

RunSpec step_of(const StudyContext& context, const ModelConfig& model, Mode mode,
                Granularity ops = Granularity::kFused) {
  return context.here({.model = model, .shape = context.sizes.shape, .mode = mode, .ops = ops});
}

bool is_same_model(const ModelConfig& a, const ModelConfig& b) {
  return a.name == b.name && a.vocab == b.vocab;
}

bool has(const std::vector<ModelConfig>& models, const ModelConfig& model) {
  return std::ranges::any_of(models, [&](auto& other) { return is_same_model(other, model); });
}

CellSpec cell_of(const StudyContext& context, const RunSpec& run, int recorded_steps) {
  return {run,
          {.warmup = 1,
           .steps = std::max(context.sizes.steps, kMostSamples),
           // Whole steps are taken apart by component.
           .recorded_steps =
               recorded_steps > 0 && run.mode == Mode::kStep ? kRecorded : recorded_steps}};
}

// `is`: of these, which.
void want(StudyContext& context, const WantedSteps& wanted,
          const std::function<bool(const RunSpec& run)>& is) {
  for (const RunSpec& run : wanted.runs) {
    if (is(run)) context.steps.want(cell_of(context, run, wanted.recorded_steps));
  }
}

// What the first screen compares: forward, backward and a step; a step in primitive ops, in fused
// ones and compiled; and the same in float32 and bfloat16.
void want_leads(StudyContext& context, const ModelConfig& model) {
  const StudySizes& sizes = context.sizes;
  std::vector<RunSpec> leads;
  for (Mode mode : {Mode::kStep, Mode::kForwardBackward, Mode::kForward}) {
    leads.push_back(step_of(context, model, mode));
  }
  if (has(sizes.precise, model)) {
    leads.push_back(step_of(context, model, Mode::kForwardBackward));
    leads.back().precision = kAutocast;
  }
  if (has(sizes.compiled, model)) {
    leads.push_back(step_of(context, model, Mode::kStep, Granularity::kPrimitive));
    leads.push_back(leads.front());
    leads.back().executor = ExecutorKind::kCompiled;
  }
  for (const RunSpec& run : leads) context.steps.want_lead(cell_of(context, run, 0));
}

// What tables show of this model; the ladder climbs with the first of those that are compiled.
void want_all_of(StudyContext& context, const ModelConfig& model) {
  const StudySizes& sizes = context.sizes;
  const auto all = [](const RunSpec&) { return true; };
  const auto in_parts = [](const RunSpec& run) { return run.ops == Granularity::kPrimitive; };
  const bool is_timed = has(sizes.models, model), is_compiled = has(sizes.compiled, model);
  want_leads(context, model);
  // The cells of most questions come first.
  if (is_timed) want(context, timed_steps(context, model), std::not_fn(in_parts));
  want(context, profiled_steps(context),
       [&](const RunSpec& run) { return is_same_model(run.model, model); });
  if (has(sizes.precise, model)) want(context, precise_steps(context, model), all);
  if (is_compiled) want(context, ways(context, model), all);
  if (is_timed) want(context, timed_steps(context, model), in_parts);
  if (is_compiled && is_same_model(sizes.compiled.front(), model)) {
    want(context, rungs(context), all);
  }
  if (is_same_model(sizes.scaled, model)) want(context, scaled_steps(context), all);
}

void measure_steps(StudyContext& context) {
  context.measure<CellSpec, CellResult>(context.steps, [](const CellSpec& spec) {
    return fmt::format("{} {}", label_of(spec.step), name_of(spec.step.executor));
  });
}

}  // namespace

template <class Spec, class Result>
void StudyContext::measure(CellRounds<Spec, Result>& cells,
                           const std::function<std::string(const Spec& spec)>& name) {
  if (seconds_left() <= 0) {
    cells.leave_out();
    left_out += static_cast<int>(cells.left_out());
    return;
  }
  int last = -1;
  cells.measure(machine.make_device, {.seconds = seconds_left(), .seed = machine.seed}, nullptr,
                [&](const Spec& spec, int round) {
                  ++begun;
                  if (round == last) return;  // one line a round
                  last = round;
                  announce(fmt::format("round {} of times, {} and others", round, name(spec)));
                });
  left_out += static_cast<int>(cells.left_out());
}
template void StudyContext::measure(StepRounds& cells,
                                    const std::function<std::string(const CellSpec& spec)>& name);
template void StudyContext::measure(
    AttentionRounds& cells, const std::function<std::string(const AttentionSpec& spec)>& name);

std::vector<CellResult> StudyContext::measured(std::span<const RunSpec> runs) const {
  std::vector<CellResult> out;
  for (const RunSpec& run : runs) {
    if (const CellResult* cell = steps.find({run, {}})) out.push_back(*cell);
  }
  return out;
}

WantedSteps timed_steps(const StudyContext& context, const ModelConfig& model) {
  WantedSteps out{.runs = {}, .recorded_steps = 1};
  for (Granularity ops : {Granularity::kFused, Granularity::kPrimitive}) {
    for (Mode mode : {Mode::kStep, Mode::kForwardBackward, Mode::kForward, Mode::kInference}) {
      out.runs.push_back(step_of(context, model, mode, ops));
    }
  }
  return out;
}

WantedSteps scaled_steps(const StudyContext& context) {
  WantedSteps out{.runs = {}, .recorded_steps = 1};
  for (std::int64_t tokens : context.sizes.contexts) {
    for (Mode mode : {Mode::kInference, Mode::kStep}) {
      out.runs.push_back(step_of(context, context.sizes.scaled, mode));
      out.runs.back().shape.context = tokens;
    }
  }
  return out;
}

// As plain framework code runs it, with composite kernels, and compiled.
WantedSteps ways(const StudyContext& context, const ModelConfig& model) {
  WantedSteps out{.runs = {}, .recorded_steps = 0};
  for (Mode mode : {Mode::kForward, Mode::kForwardBackward, Mode::kStep}) {
    out.runs.push_back(step_of(context, model, mode, Granularity::kPrimitive));
    out.runs.push_back(step_of(context, model, mode));
    out.runs.push_back(out.runs.back());
    out.runs.back().executor = ExecutorKind::kCompiled;
  }
  return out;
}

std::vector<const Rung*> study_rungs() {
  std::vector<const Rung*> out;
  for (const Rung& rung : all_rungs()) out.push_back(&rung);
  return out;
}

WantedSteps rungs(const StudyContext& context) {
  const RunSpec run = step_of(context, context.sizes.compiled.front(), Mode::kStep);
  return {.runs = ladder_runs(run, study_rungs()), .recorded_steps = 0};
}

WantedSteps precise_steps(const StudyContext& context, const ModelConfig& model) {
  const StudySizes& sizes = context.sizes;
  const bool is_first = is_same_model(model, sizes.precise.front());
  const std::vector<Precision> usual = {Precision(), kAutocast};
  WantedSteps out{.runs = {}, .recorded_steps = is_first ? kRecorded : 1};
  for (const Precision& precision : is_first ? sizes.precisions : usual) {
    out.runs.push_back(step_of(context, model, Mode::kForwardBackward));
    out.runs.back().precision = precision;
  }
  return out;
}

WantedSteps profiled_steps(const StudyContext& context) {
  WantedSteps out{.runs = {}, .recorded_steps = 0};  // the profiler's are its own
  for (const RunSpec& step : context.sizes.profiled) {
    for (Mode mode : {Mode::kInference, Mode::kStep}) {
      out.runs.push_back(context.here(step));
      out.runs.back().mode = mode;
    }
  }
  return out;
}

void measure_shared_steps(StudyContext& context) {
  want(context, shared_steps(context), [](const RunSpec&) { return true; });
  measure_steps(context);
}

void first_step_part(StudyContext& context) {
  want_all_of(context, context.sizes.models.front());
  measure_steps(context);
}

void other_step_part(StudyContext& context) {
  const StudySizes& sizes = context.sizes;
  std::vector<ModelConfig> models;
  const auto add = [&](const ModelConfig& model) {
    const bool is_known = is_same_model(sizes.models.front(), model) || has(models, model);
    if (!is_known) models.push_back(model);
  };
  for (const auto* list : {&sizes.models, &sizes.precise, &sizes.compiled}) {
    for (const ModelConfig& model : *list) add(model);
  }
  for (const RunSpec& step : sizes.profiled) add(step.model);
  add(sizes.scaled);
  std::ranges::stable_sort(models, {}, parameter_formula);
  // The cells of a model are held against each other: a group, with its share of the time. Smaller
  // models come first, and what they leave is for the larger ones.
  const auto end = context.deadline;
  for (std::size_t i = 0; i < models.size(); ++i) {
    const auto now = std::chrono::steady_clock::now();
    context.deadline = now + (end - now) / static_cast<int>(models.size() - i);
    want_all_of(context, models[i]);
    measure_steps(context);
  }
  context.deadline = end;
}

}  // namespace tracestep
