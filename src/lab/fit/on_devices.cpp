#include "lab/fit/on_devices.h"

#include <algorithm>

#include "base/error.h"
#include "base/integers.h"
#include "lab/fit/advice.h"
#include "lab/memory/tables.h"
#include "lab/report/known_columns.h"
#include "nn/families.h"
#include "run/parallel.h"
#include "spec/planned.h"
#include "spec/step_program.h"

namespace tracestep {
namespace {

constexpr int kOfNode = 8;  // if no data sheet says how many a link joins
constexpr double kCallUs = 1e6 * kCallSeconds;

int devices_of_node(const DevicesQuestion& o, std::int64_t gpus) {
  if (o.nodes > 0) return static_cast<int>(gpus / o.nodes);
  const bool has_link = o.published != nullptr && o.published->link_ranks > 1;
  const std::int64_t most = std::max<std::int64_t>(kOfNode, has_link ? o.published->link_ranks : 0);
  return static_cast<int>(std::min(gpus, most));
}

// Throws for a field that does not go with the others.
void check_devices(const DevicesQuestion& o, const RunGrid& grid, std::string_view largest) {
  const bool is_given = grid.is_given("parallel"), is_of_model = largest == kLargestModel;
  const bool is_one = o.has_devices() ? o.gpus == 1 : !is_given;
  const char* const one_of_two = "give one of the two";
  struct Rule {
    bool is_broken;
    About field;
    const char *what, *hint;
  };
  const Rule rules[] = {
      {o.has_devices() && is_given, "parallel"_field,
       "how devices share the step is what " TRACESTEP_OPTION(gpus) " chooses", one_of_two},
      {o.gpus > 0 && o.is_smallest, "smallest"_field,
       "how many devices there are is given by " TRACESTEP_OPTION(gpus), one_of_two},
      {o.nodes > 0 && (o.gpus == 0 || o.gpus % o.nodes != 0), "nodes"_field,
       "every node has as many devices as the others",
       "give " TRACESTEP_OPTION(gpus) ", a multiple of it"},
      {o.is_smallest && !largest.empty() && !is_of_model, "largest"_field,
       "the fewest devices are of one batch and one context",
       "give " TRACESTEP_OPTION(gpus) " instead of " TRACESTEP_OPTION(smallest)},
      {is_one && (o.link_gb_s > 0 || o.network_gb_s > 0),
       o.link_gb_s > 0 ? "link_gb_s"_field : "network_gb_s"_field, "one device alone uses no link",
       "leave it out, or give " TRACESTEP_OPTION(gpus) " or " TRACESTEP_OPTION(parallel)},
      {is_of_model && (grid.is_given("model") || grid.is_given("size")), "largest"_field,
       "the model is what is searched for",
       "leave out " TRACESTEP_OPTION(model) " and " TRACESTEP_OPTION(size)}};
  for (const Rule& rule : rules) {
    if (rule.is_broken) throw Error(ErrorCode::kUsage, rule.field, rule.what, rule.hint);
  }
}

}  // namespace

RunGrid planned_grid(const RunGrid& grid, const TimeOptions& times, std::string_view largest,
                     DevicesQuestion& o, std::vector<const RunField*>& assumed) {
  check_devices(o, grid, largest);
  RunGrid out = on_timed_device(grid, times);
  if (o.has_devices() && !out.is_given("device")) out.offer("device", {"cuda"});
  assumed = assume_planned(out, times, o.gpus);
  o.is_batch_assumed = std::ranges::count(assumed, "batch", &RunField::name) > 0;
  return out;
}

std::optional<Predictor> predictor_of(const TimeSource& source, const RunSpec& run,
                                      const DevicesQuestion& o) {
  if (run.parallel.is_on() && !traits_named(run.place.device).has_own_memory()) {
    throw Error(ErrorCode::kUsage, "parallel"_field,
                "ranks on one CPU share its memory and its cores",
                "for devices of their own give " TRACESTEP_OPTION(
                    device) " cuda or " TRACESTEP_OPTION(published));
  }
  if (!source.model) return std::nullopt;
  Predictor out = source.predictor();
  if (run.parallel.is_on()) out.link = link_of(o, run.parallel.ranks);
  return out;
}

Link link_of(const DevicesQuestion& o, std::int64_t ranks) {
  const int of_node = devices_of_node(o, ranks);
  Link out{.gb_s = o.link_gb_s, .call_us = kCallUs};
  if (out.gb_s == 0 && o.published != nullptr) {
    out.gb_s = o.published->reached_link_gb_s(of_node);
  }
  if (out.gb_s == 0) {
    throw Error(
        ErrorCode::kUsage, "link_gb_s"_field,
        fmt::format("how fast the link between {} devices of a node is, is not known", of_node),
        "give what tracestep comm measures as bus bandwidth");
  }
  if (of_node >= ranks) return out;
  if (o.network_gb_s == 0) {
    throw Error(
        ErrorCode::kUsage, "network_gb_s"_field,
        fmt::format("{} devices are on several nodes of {}, and how fast the network between "
                    "them is, is not known",
                    ranks, of_node),
        "give GB/s of each device, as 50 for a port of 400 Gbit/s each, or other " TRACESTEP_OPTION(
            nodes));
  }
  out.network_gb_s = o.network_gb_s;
  out.of_node = of_node;
  return out;
}

namespace {

// Returns the batch for `gpus` devices: as asked, but in a search for the fewest devices the one
// assumed for that number, or the given one, rounded up to a multiple if they cannot share it.
std::int64_t batch_for(const FitQuestion& asked, const DevicesQuestion& o, std::int64_t gpus) {
  const std::int64_t given = asked.step.shape.batch;
  if (!o.is_smallest || gpus == 1) return given;
  if (o.is_batch_assumed) return planned_batch(gpus);
  const bool can_share =
      !parallel_choices(asked.step, static_cast<int>(gpus), devices_of_node(o, gpus)).empty();
  return can_share ? given : ceil_div(given, gpus) * gpus;
}

// Returns the question for `gpus` devices. It refers to `predictor`, which must outlive it.
FitQuestion for_devices(const FitQuestion& asked, const DevicesQuestion& o, std::int64_t gpus,
                        std::optional<Predictor>& predictor) {
  FitQuestion out = asked;
  out.division = BatchDivision::kFreely;
  out.step.shape.batch = batch_for(asked, o, gpus);
  if (out.step.shape.batch != asked.step.shape.batch) out.asked.reset();
  if (asked.times != nullptr && gpus > 1) {
    predictor.emplace(*asked.times);
    predictor->link = link_of(o, gpus);
    out.times = &*predictor;
  }
  out.parallels =
      gpus == 1 ? std::vector<Parallel>()
                : parallel_choices(out.step, static_cast<int>(gpus), devices_of_node(o, gpus));
  return out;
}

// Returns the step as asked if it fits one device; otherwise, or for several, what a search finds.
Advice advice_for(const FitQuestion& question, std::int64_t gpus) {
  if (gpus > 1) return advise(question);
  FiguresOfSteps figures(question.traits, question.times);
  const StepFigures& asked = figures.exact(question.step);
  if (!asked.refusal && !is_within(asked, question.within_bytes())) return advise(question);
  Advice out;
  out.refusal = asked.refusal;
  if (out.refusal) return out;
  out.remedies.push_back({.step = question.step, .figures = asked});
  return out;
}

bool keeps_task(const Advice& advice) {
  return !advice.remedies.empty() && advice.remedies[0].keeps_task();
}

// True if the training ends within its days; also if its tokens, its days or times are not given.
bool is_in_time(const FitQuestion& question, const Advice& advice, const Training& training) {
  if (training.tokens == 0 || training.days == 0 || question.times == nullptr) return true;
  return days_of(training, tokens_per_s(question, advice.remedies[0])) <= training.days;
}

[[noreturn]] void fail_batch(const RunSpec& step, std::int64_t gpus) {
  throw Error(
      ErrorCode::kUsage, "gpus"_field,
      fmt::format("{} devices cannot share a batch of {} of this model", gpus, step.shape.batch),
      fmt::format("give " TRACESTEP_OPTION(batch) " {}, or a multiple of it", gpus));
}

struct Planned {
  std::int64_t gpus = 1, batch = 0;
  Advice advice;
  Table table;
  std::optional<Link> link;
  bool is_enough = false;  // true if it fits, and is done in time
  std::optional<Stopped> stopped = {};

  Fitted fitted() && {
    Fitted out;
    out.tables.push_back(std::move(table));
    out.plans = std::move(advice.remedies);
    out.link = link;
    out.batch = batch;
    out.gpus = gpus;
    out.stopped = stopped;
    return out;
  }
};

// Returns the plan for `gpus` devices, with its table; nullopt if they cannot share the step.
std::optional<Planned> planned(const FitQuestion& asked, const DevicesQuestion& o,
                               std::int64_t gpus) {
  std::optional<Predictor> predictor;
  const FitQuestion question = for_devices(asked, o, gpus, predictor);
  if (gpus > 1 && question.parallels.empty()) return std::nullopt;
  Advice advice = advice_for(question, gpus);
  const Training training = training_of(o, static_cast<int>(gpus));
  const bool is_enough = keeps_task(advice) && is_in_time(question, advice, training);
  Table table = plan_table(question, advice.remedies, training);
  const std::int64_t batch = question.step.shape.batch;
  if (!o.is_batch_assumed && batch != asked.step.shape.batch) {
    table.notes.push_back(fmt::format("{} devices cannot share a batch of {}: {} is the next", gpus,
                                      asked.step.shape.batch, batch));
  }
  return Planned{gpus,
                 batch,
                 std::move(advice),
                 std::move(table),
                 predictor ? predictor->link : std::nullopt,
                 is_enough,
                 {}};
}

// Returns a lower bound on the device bytes per weight, whatever changes are made to the step.
std::int64_t least_bytes_of_weight(const FitQuestion& asked) {
  constexpr std::int64_t kFrozen = 2;  // in the low dtype
  if (trains_part(asked.step)) return kFrozen;
  const std::int64_t stored = is_pure(asked.step.precision) ? 2 : 4;
  if (asked.step.mode != Mode::kStep) return stored;
  constexpr std::int64_t kNarrowStates = 4, kNarrowCopy = 2;
  return asked.traits.has_own_memory() ? kNarrowCopy : stored + kNarrowStates;
}

void name_model(const std::string& name, Table& table) {
  table.name = "largest_model";
  table.title = "The largest of the models that tracestep models lists";
  table.columns.insert(table.columns.begin(), col::model);
  for (std::vector<Json>& row : table.rows) row.insert(row.begin(), name);
}

// Prefixes the progress line with `name`.
FitQuestion named(FitQuestion question, const std::string& name) {
  if (!question.progress) return question;
  question.progress = [name, all = std::move(question.progress)](const std::string& trying,
                                                                 const WeighedSets& sets) {
    all(name + ": " + trying, sets);
  };
  return question;
}

std::optional<Planned> tried(const FitQuestion& asked, const DevicesQuestion& o,
                             std::int64_t gpus) {
  return planned(named(asked, fmt::format("{} device{}", gpus, gpus == 1 ? "" : "s")), o, gpus);
}

// Returns the plan for the fewest devices that are enough, above `too_few` and up to `enough`, by
// bisection. More devices than a node has are a multiple of a node's devices.
Planned fewest_above(std::int64_t too_few, Planned enough, const FitQuestion& asked,
                     const DevicesQuestion& o) {
  const std::int64_t of_node = devices_of_node(o, enough.gpus);
  const std::int64_t unit = enough.gpus > of_node ? of_node : 1;
  for (std::int64_t low = too_few / unit; enough.gpus / unit - low > 1;) {
    const std::int64_t middle = low + (enough.gpus / unit - low) / 2;
    std::optional<Planned> next = tried(asked, o, middle * unit);
    if (next && next->is_enough) {
      enough = std::move(*next);
    } else {
      low = middle;
    }
  }
  return enough;
}

// Finds the fewest devices that are enough by powers of two, then by bisection; returns their plan.
Planned fewest(const FitQuestion& asked, const DevicesQuestion& o) {
  constexpr std::int64_t kMostTried = 1024;
  std::optional<Planned> last;
  std::int64_t gpus = 1;
  for (; gpus <= kMostTried; gpus *= 2) {
    const bool needs_network =
        asked.times != nullptr && gpus > devices_of_node(o, gpus) && o.network_gb_s == 0;
    if (last && needs_network) {
      last->stopped = Stopped::kAtNode;
      return std::move(*last);
    }
    std::optional<Planned> next = tried(asked, o, gpus);
    if (!next) break;
    if (next->advice.refusal) return std::move(*next);
    if (next->is_enough) return fewest_above(gpus / 2, std::move(*next), asked, o);
    last = std::move(next);
  }
  last->stopped = gpus > kMostTried ? Stopped::kAtMostTried : Stopped::kAtBatch;
  return std::move(*last);
}

}  // namespace

Training training_of(const DevicesQuestion& o, int devices) {
  return {.device = o.published != nullptr ? o.published->name : "",
          .devices = devices,
          .tokens = o.tokens,
          .days = o.days,
          .cost_per_hour = o.cost_per_hour};
}

Fitted fit_on_devices(const FitQuestion& asked, const DevicesQuestion& o) {
  std::optional<Planned> found = o.is_smallest ? fewest(asked, o) : planned(asked, o, o.gpus);
  if (!found) fail_batch(asked.step, o.gpus);
  const Advice advice = found->advice;
  if (advice.refusal) throw Error(*advice.refusal);
  Fitted out = std::move(*found).fitted();
  if (!advice.least) return out;
  out.tables.push_back(least_table(asked, advice));
  out.tables.push_back(
      holder_table({.run = predict_memory(repeated_part(*advice.least), asked.traits)}));
  return out;
}

Fitted largest_on_devices(const FitQuestion& asked, Growth growth, const DevicesQuestion& o) {
  std::optional<Predictor> predictor;
  FitQuestion step = asked;
  if (growth == Growth::kBatch) step.step.shape.batch = o.gpus;  // every way to share allows it
  const FitQuestion question = for_devices(step, o, o.gpus, predictor);
  if (o.gpus > 1 && question.parallels.empty()) fail_batch(asked.step, o.gpus);
  Fitted out;
  out.tables.push_back(largest_table(question, growth));
  if (predictor) out.link = predictor->link;
  return out;
}

Fitted largest_model(const FitQuestion& asked, const DevicesQuestion& o) {
  std::vector<ModelConfig> models = model_presets();
  for (const KnownModel& known : known_models()) models.push_back(known.config);
  std::ranges::stable_sort(models, std::greater{}, parameter_formula);
  const std::int64_t gpus = std::max<std::int64_t>(1, o.gpus);
  if (asked.times != nullptr && gpus > 1) link_of(o, gpus);  // refused of any model
  for (const ModelConfig& model : models) {
    if (least_bytes_of_weight(asked) * parameter_formula(model) / gpus > asked.limit_bytes)
      continue;
    FitQuestion question = named(asked, model.name);
    question.step.model = model;
    question.asked.reset();
    question.is_of_task_alone = true;
    if (refusal_of(question.step)) continue;
    std::optional<Planned> found = planned(question, o, gpus);
    if (!found || !keeps_task(found->advice)) continue;
    name_model(model.name, found->table);
    return std::move(*found).fitted();
  }
  throw Error(ErrorCode::kUsage, "largest"_field, "none of the models that are known by name fits",
              "give more memory, or a smaller batch or context");
}

}  // namespace tracestep
