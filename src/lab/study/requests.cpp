// Which steps the study's tables ask for, and their measurement in rounds: a cell that several
// tables show is measured once.
#include <algorithm>
#include <functional>

#include <fmt/format.h>

#include "base/error.h"
#include "lab/study/study.h"
#include "spec/axes.h"
#include "spec/fields.h"

namespace tracestep {
namespace {

constexpr int kMostSamples = 30;  // of a visit
constexpr int kRecorded = 3;      // steps whose kernels are shown

// The models of StudySizes, or its profiled steps; kAny: whichever model is measured.
enum class Of { kAny, kModels, kScaled, kPrecise, kCompiled, kProfiled, kShared };
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

// The runs that a table shows of each of some models.
struct Request {
  std::string_view table;  // empty: what the first screen compares, in more rounds than others
  Of models;
  Which which;
  Axes axes;
  int recorded = 0;  // steps whose kernels are recorded
  std::vector<RunSpec> (*more)(const StudyContext&, const RunSpec& base) = nullptr;  // instead
};

std::vector<RunSpec> ladder(const StudyContext&, const RunSpec& base) {
  return ladder_runs(base, study_rungs());
}

// Requests that most questions need stand first: where time is short the last ones are left out.
const std::vector<Request>& all_requests() {
  constexpr auto kStep = Mode::kStep, kBoth = Mode::kForwardBackward, kForward = Mode::kForward,
                 kInference = Mode::kInference;
  constexpr auto kEager = ExecutorKind::kEager, kCompiled = ExecutorKind::kCompiled;
  static const Precision in_fp32, in_bf16{.autocast = DType::kBF16};
  static const Granularity in_parts = Granularity::kPrimitive, fused = Granularity::kFused;
  static const std::vector<Request> all = {
      // Forward, backward and a step; the same in bfloat16; a step in primitive ops, and compiled.
      {"", Of::kAny, Which::kAll, {.modes = {kStep, kBoth, kForward}}},
      {"", Of::kPrecise, Which::kAll, {.modes = {kBoth}, .precisions = {in_bf16}}},
      {"", Of::kCompiled, Which::kAll, {.modes = {kStep}, .ops = {in_parts}}},
      {"", Of::kCompiled, Which::kAll, {.modes = {kStep}, .executors = {kCompiled}}},
      {"time", Of::kModels, Which::kAll, {.modes = {kStep, kBoth, kForward, kInference}}, 1},
      {"passes", Of::kProfiled, Which::kAll, {.modes = {kInference, kStep}}},  // recorded later
      {"steps", Of::kPrecise, Which::kFirst, {.modes = {kBoth}, .has_precisions = true}, kRecorded},
      {"steps",
       Of::kPrecise,
       Which::kOthers,
       {.modes = {kBoth}, .precisions = {in_fp32, in_bf16}},
       1},
      {"ways",
       Of::kCompiled,
       Which::kAll,
       {.modes = {kForward, kBoth, kStep},
        .ops = {in_parts, fused},
        .executors = {kEager, kCompiled}}},
      {"time", Of::kModels, Which::kAll, {.modes = {kStep, kForward}, .ops = {in_parts}}, 1},
      {"ladder", Of::kCompiled, Which::kFirst, {}, 0, ladder},
      {"scaling", Of::kScaled, Which::kAll, {.has_contexts = true, .modes = {kStep, kForward}}, 1},
      {"ranks", Of::kShared, Which::kAll, {}, 1, shared_steps},
  };
  return all;
}

bool is_same_model(const ModelConfig& a, const ModelConfig& b) {
  return a.name == b.name && a.vocab == b.vocab;
}

// The runs that a request varies: one for each of its models, in their order.
std::vector<RunSpec> bases_of(const StudyContext& context, Of models) {
  const StudySizes& sizes = context.sizes;
  const auto of = [&](std::span<const ModelConfig> all) {
    std::vector<RunSpec> out;
    for (const ModelConfig& m : all)
      out.push_back(context.here({.model = m, .shape = sizes.shape}));
    return out;
  };
  switch (models) {
    case Of::kAny: return {};
    case Of::kModels: return of(sizes.models);
    case Of::kScaled: return of({&sizes.scaled, 1});
    case Of::kPrecise: return of(sizes.precise);
    case Of::kCompiled: return of(sizes.compiled);
    case Of::kShared: return of({&sizes.models.front(), 1});
    case Of::kProfiled: break;
  }
  std::vector<RunSpec> out;
  for (const RunSpec& step : sizes.profiled) out.push_back(context.here(step));
  return out;
}

std::vector<RunSpec> expanded(const StudyContext& context, const Request& request,
                              const RunSpec& base) {
  if (request.more != nullptr) return request.more(context, base);
  const Axes& axes = request.axes;
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

bool includes(Which which, std::size_t model) {
  return which == Which::kAll || (which == Which::kFirst) == (model == 0);
}

// Asks for the cells of a table, or of all but those of the ranks, of the models that are meant.
void want(StudyContext& context, const std::function<bool(const Request&)>& is,
          const ModelConfig& model) {
  for (const Request& request : all_requests()) {
    if (!is(request)) continue;
    std::vector<RunSpec> bases = bases_of(context, request.models);
    if (request.models == Of::kAny) {
      bases = {context.here({.model = model, .shape = context.sizes.shape})};
    }
    for (std::size_t i = 0; i < bases.size(); ++i) {
      if (!includes(request.which, i) || !is_same_model(bases[i].model, model)) continue;
      for (const RunSpec& run : expanded(context, request, bases[i])) {
        const bool is_whole = request.recorded > 0 && run.mode == Mode::kStep;
        // Whole steps are taken apart by component.
        const CellSpec cell{run,
                            {.warmup = 1,
                             .steps = std::max(context.sizes.steps, kMostSamples),
                             .recorded_steps = is_whole ? kRecorded : request.recorded}};
        if (request.table.empty()) {
          context.steps.want_lead(cell);
        } else {
          context.steps.want(cell);
        }
      }
    }
  }
}

void measure_steps(StudyContext& context) {
  context.measure<CellSpec, CellResult>(context.steps, [](const CellSpec& spec) {
    return fmt::format("{} {}", label_of(spec.step), name_of(spec.step.executor));
  });
}

void measure_model(StudyContext& context, const ModelConfig& model) {
  want(
      context, [](const Request& request) { return request.models != Of::kShared; }, model);
  measure_steps(context);
}

}  // namespace

std::vector<RunSpec> runs_in(const StudyContext& context, std::string_view table) {
  std::vector<Request> requests;
  std::ranges::copy_if(all_requests(), std::back_inserter(requests),
                       [&](const Request& request) { return request.table == table; });
  TRACESTEP_CHECK(!requests.empty(), "no steps are asked for by {}", table);
  const std::vector<RunSpec> bases = bases_of(context, requests.front().models);
  std::vector<RunSpec> out;
  for (std::size_t i = 0; i < bases.size(); ++i) {
    for (const Request& request : requests) {
      if (!includes(request.which, i)) continue;
      std::ranges::move(expanded(context, request, bases[i]), std::back_inserter(out));
    }
  }
  return out;
}

std::vector<RunSpec> runs_in(const StudyContext& context, std::string_view table,
                             const ModelConfig& model) {
  std::vector<RunSpec> out;
  const RunSpec base = context.here({.model = model, .shape = context.sizes.shape});
  for (const Request& request : all_requests()) {
    if (request.table != table) continue;
    const std::vector<RunSpec> all = bases_of(context, request.models);
    const auto at = std::ranges::find_if(
        all, [&](const RunSpec& other) { return is_same_model(other.model, model); });
    if (!includes(request.which, static_cast<std::size_t>(at - all.begin()))) continue;
    std::ranges::move(expanded(context, request, base), std::back_inserter(out));
  }
  return out;
}

template <class Spec, class Result>
void StudyContext::measure(CellRounds<Spec, Result>& cells,
                           const std::function<std::string(const Spec& spec)>& name) {
  if (seconds_left() <= 0) {
    cells.leave_out();
    left_out += static_cast<int>(cells.left_out());
    return;
  }
  int last = -1;
  // The interval of nine medians leaves the least and the most of them out, so that one visit
  // beside other work does not widen it.
  constexpr int kMostRounds = 12, kRoundsOfLeads = 9;
  const RoundLimits limits{.most = kMostRounds,
                           .seconds = seconds_left(),
                           .seed = machine.seed,
                           .least_of_leads = kRoundsOfLeads};
  cells.measure(machine.make_device, limits, nullptr, [&](const Spec& spec, int round) {
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

std::vector<const Rung*> study_rungs() {
  std::vector<const Rung*> out;
  for (const Rung& rung : all_rungs()) out.push_back(&rung);
  return out;
}

void measure_shared_steps(StudyContext& context) {
  want(
      context, [](const Request& request) { return request.models == Of::kShared; },
      context.sizes.models.front());
  measure_steps(context);
}

void first_step_part(StudyContext& context) {
  measure_model(context, context.sizes.models.front());
}

void other_step_part(StudyContext& context) {
  const StudySizes& sizes = context.sizes;
  std::vector<ModelConfig> models;
  const auto add = [&](const ModelConfig& model) {
    const auto is_it = [&](const ModelConfig& other) { return is_same_model(other, model); };
    const bool is_known = is_it(sizes.models.front()) || std::ranges::any_of(models, is_it);
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
    measure_model(context, models[i]);
  }
  context.deadline = end;
}

}  // namespace tracestep
