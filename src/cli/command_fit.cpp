// tracestep fit: does a step fit, what is the least change that makes it fit, how many devices and
// days it takes, and how large a batch, a context or a model would fit.
#include <algorithm>
#include <iterator>
#include <memory>
#include <optional>

#include "base/error.h"
#include "base/host_memory.h"
#include "base/log.h"
#include "base/output_file.h"
#include "base/units.h"
#include "captured/captured_model.h"
#include "cli/command.h"
#include "cli/devices.h"
#include "cli/fit_plan.h"
#include "cli/memory_as_pytorch.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/remaining_time.h"
#include "cli/split_hint.h"
#include "lab/fit/advice.h"
#include "lab/fit/fit.h"
#include "lab/fit/largest.h"
#include "lab/fit/plan_page.h"
#include "lab/pages/first_answer.h"
#include "lab/predict/time_source.h"
#include "passes/recompute_budget.h"
#include "spec/fields.h"
#include "spec/planned.h"

namespace tracestep::cli {
namespace {

struct FitOptions {
  RunGrid grid{{.model = preset("small"), .shape = {.batch = 4, .context = 512}}};
  OutputOptions output;
  TimeOptions times;
  PlanOptions plan;
  std::string largest;
  double margin_percent = 100 * kUsualMargin;
};

// The limit that was given, that of a published device, or, for a CPU asked for by name, what a run
// may take of this machine's free memory, as `note` then says. Else throws Error{kUsage}.
std::int64_t limit_of(const RunSpec& run, const TimeSource& source, bool is_device_given,
                      std::string& note) {
  const std::int64_t limit = run.place.memory_limit_bytes;
  if (limit > 0) return limit;
  if (source.usable_bytes > 0) return source.usable_bytes;
  const DeviceTraits traits = traits_of(run.place);
  if (is_device_given && traits.computes && traits.shares_kernels_among_threads()) {
    if (const std::optional<std::int64_t> free = available_memory()) {
      const std::int64_t usable = usable_part(*free);
      note = fmt::format(
          "the limit is {}: nine tenths of what this machine has free now, as a run may take",
          format_bytes(usable));
      return usable;
    }
  }
  throw Error(ErrorCode::kUsage, "--memory-limit", "how much memory there is decides what fits",
              "give what the device has free, such as --memory-limit 78GiB, or its name with "
              "--published; --device cpu takes what this machine has free");
}

// Predicts the step as given. nullopt: it misses its budget, and `finds_size` seeks another size.
std::optional<MemoryCell> cell_of(const FitQuestion& asked, bool finds_size) {
  try {
    return MemoryCell{.run = predict_memory(asked.step, asked.traits),
                      .limit_bytes = asked.limit_bytes};
  } catch (const BudgetNotMet& error) {
    if (!finds_size) throw;
    log_warn("{}: {}", label_of(asked.step), error.what());
    return std::nullopt;
  }
}

// Adds tables of the least memory that suffices, and what holds it, if no advised change fits.
void add_least(const FitQuestion& asked, const Advice& advice, std::vector<Table>& tables) {
  if (!advice.least) return;
  tables.push_back(least_table(asked, advice));
  tables.push_back(
      holder_table({.run = predict_memory(repeated_part(*advice.least), asked.traits)}));
}

// Fails if times are asked for and none are known, or the device has no products in this precision.
void check_times(const TimeSource& source, const PlanOptions& plan) {
  if (source.model) return;
  if (source.device != nullptr && source.device->has_times()) {
    throw Error(ErrorCode::kUsage, "--precision", source.note,
                "give another one, or another device");
  }
  if (!plan.is_training()) return;
  throw Error(ErrorCode::kUsage, flag_of_training(plan),
              "no time of a step is known, and so no speed",
              source.device != nullptr ? source.note
                                       : "give --published H100, or measure this device once: "
                                         "tracestep predict --calibrate");
}

// Answers if the step as asked fits, and what would make it fit.
Fitted fit_as_asked(const FitQuestion& asked, const FitOptions& o, SearchProgress& progress) {
  const std::optional<MemoryCell> cell = cell_of(asked, !o.largest.empty());
  Fitted out;
  std::vector<Table>& tables = out.tables;
  FitQuestion known = asked;
  if (cell) {
    tables.push_back(fit_table(*cell, asked));
    known.asked = figures_of(asked.step, cell->run.program, asked.traits, asked.times);
  }
  if (const std::optional<Growth> growth = named<Growth>(o.largest)) {
    tables.push_back(largest_table(known, *growth));
    return out;
  }
  const FitVerdict verdict = fit_verdict(cell->run.predicted_peak_bytes, asked);
  if (verdict == FitVerdict::kFits) {
    out.plans.push_back({.step = asked.step, .figures = *known.asked});
  } else {
    progress.know(fmt::format("the peak is {}, of {}", format_bytes(known.asked->peak_bytes),
                              format_bytes(asked.limit_bytes)));
    known.division = BatchDivision::kIfNeeded;
    const Advice advice = advise(known);
    tables.push_back(remedy_table(asked, advice));
    if (verdict == FitVerdict::kDoesNotFit) add_least(known, advice, tables);
    out.plans = advice.remedies;
  }
  if (o.plan.is_training()) {
    const Training training = training_of(o.plan, asked.step.parallel.ranks);
    tables.push_back(plan_table(asked, out.plans, training));
  }
  return out;
}

// The table that the answer is read from; without an answer the first one.
Table& shown_table(const std::optional<pages::FirstAnswer>& answer, std::vector<Table>& tables) {
  const auto found = answer ? std::ranges::find(tables, answer->table, &Table::name) : tables.end();
  return found == tables.end() ? tables.front() : *found;
}

void write_page(const FitOptions& o, FitQuestion asked, const Fitted& found,
                const Json& environment) {
  std::optional<Predictor> linked;
  if (asked.times != nullptr) {
    linked.emplace(*asked.times);
    if (found.link) linked->link = found.link;
    asked.times = &*linked;
  }
  write_file(o.output.path, plan_page(asked, found.plans, found.tables, environment));
  log_info("the plan is in {}", o.output.path.string());
}

Fitted answer_to(const FitQuestion& asked, const FitOptions& o, SearchProgress& progress) {
  if (o.largest == kLargestModel) return largest_model(asked, o.plan);
  if (!o.plan.has_devices()) return fit_as_asked(asked, o, progress);
  if (const std::optional<Growth> growth = named<Growth>(o.largest)) {
    return largest_on_devices(asked, *growth, o.plan);
  }
  return fit_on_devices(asked, o.plan);
}

// Says what is assumed of the step, with the batch of the devices that were found, in the
// environment and below the answer. A field that is searched for is not assumed.
void say_assumed_for(std::vector<const RunField*> fields, const FitOptions& o, RunSpec run,
                     const Fitted& found, Json& environment, std::vector<std::string>& notes) {
  std::erase_if(fields, [&](const RunField* field) { return field->name == o.largest; });
  if (found.batch > 0) run.shape.batch = found.batch;
  say_assumed(fields, {&run, 1}, environment, notes);
}

// Refuses searches that change the batch or context of a captured module, which has one of each.
void check_captured(const RunSpec& run, const FitOptions& o) {
  if (run.model.captured == nullptr) return;
  if (!o.largest.empty()) {
    fail_usage("--largest",
               "{} was captured with one batch and one context; capture it with others",
               run.model.name);
  }
  if (o.plan.is_smallest || o.plan.gpus > 1) {
    fail_usage("--gpus",
               "{} was captured for one device; give --parallel dp=N for N of its batches",
               run.model.name);
  }
}

// Adds a table of the memory that PyTorch needs, if the captured module's own step was recorded.
void add_pytorch(const FitQuestion& asked, std::vector<Table>& tables) {
  const auto& captured = asked.step.model.captured;
  if (captured == nullptr || !std::filesystem::exists(captured->folder / kRecordedStep)) return;
  const std::int64_t ours = predict_memory(asked.step, asked.traits).predicted_peak_bytes;
  tables.push_back(pytorch_table(pytorch_question(asked.step, asked.limit_bytes, {}, ours)));
}

int run_fit(const FitOptions& given, std::span<const std::string> arguments) {
  FitOptions o = given;
  check_training(o.plan, o.largest);
  std::vector<const RunField*> assumed;
  const RunGrid grid = planned_grid(o.grid, o.times, o.largest, o.plan, assumed);
  const RunSpec run = run_of(grid, Takes::kPlanner, DeviceUse::kPlan, Ranks::kUsed);
  check_captured(run, o);
  probe_output(o.output);
  Json environment = environment_of(arguments, run);
  const TimeSource source = time_source(run, o.times, environment);
  check_times(source, o.plan);
  o.plan.published = source.device;
  const std::string counted = count_tokens(run.model, o.plan);
  std::optional<Predictor> predictor = predictor_of(source, run, o.plan);
  SearchProgress progress;
  std::string note_of_limit;
  const FitQuestion asked{
      .step = run,
      .traits = traits_of(run.place),
      .limit_bytes = limit_of(run, source, grid.is_given("device"), note_of_limit),
      .margin = o.margin_percent / 100,
      .times = predictor ? &*predictor : nullptr,
      .progress = [&](const std::string& trying, const WeighedSets& sets) {
        progress.update(trying, sets.done, sets.all);
      }};
  asked.progress("planning " + label_of(run), {});
  Fitted found = answer_to(asked, o, progress);
  progress.done();
  if (o.largest.empty()) add_pytorch(asked, found.tables);
  if (const std::string why = note_of(found); !why.empty()) {
    found.tables.front().notes.push_back(why);
  }
  std::vector<std::string> notes;
  if (!note_of_limit.empty()) notes.push_back(note_of_limit);
  if (!counted.empty()) notes.push_back(counted);
  say_assumed_for(assumed, o, run, found, environment, notes);
  std::string note = source.note;
  const bool is_linked = predictor && predictor->link && source.device != nullptr;
  if (is_linked && o.plan.link_gb_s == 0 && o.plan.nodes <= 1) {
    note += note_of_link(*source.device, run.parallel.ranks);
  }
  const auto answer = pages::first_answer(kFitSchema, found.tables, environment);
  Table& shown = shown_table(answer, found.tables);
  notes.push_back(note);
  std::ranges::move(notes, std::back_inserter(shown.notes));
  const std::string hint =
      o.times.published.empty() ? split_hint(run, environment) : split_hint(run, source);
  if (!hint.empty()) shown.notes.push_back(hint);
  if (is_page(o.output)) {
    write_page(o, asked, found, environment);
    if (answer) log_info("{}", answer->sentence);
    return 0;
  }
  write_tables(o.output, kFitSchema, environment, std::move(found.tables));
  return 0;
}

}  // namespace

Command fit_command() {
  const auto options = std::make_shared<FitOptions>();
  FitOptions& o = *options;
  Command command{.name = "fit"};
  OptionSet& set = command.options;
  set.group("What is to fit");
  set.choice(
      "--largest", o.largest,
      {std::string(name_of(Growth::kBatch)), std::string(name_of(Growth::kContext)), kLargestModel},
      "find the largest batch, context or known model that fits");
  set.real("--margin", o.margin_percent, {.min = 0.0, .max = 90.0},
           "percent of the memory to leave free: for other programs, fragments and libraries");
  add_time_options(set, o.times);
  add_run_fields(set, o.grid, Values::kOne, "cpu; cuda[:N]; null (plans only)");
  add_plan_options(set, o.plan);
  add_output_options(set, o.output);
  o.output.own_endings = {std::string(kPageEnding)};
  runs_with(command, options, run_fit);
  return command;
}

}  // namespace tracestep::cli
