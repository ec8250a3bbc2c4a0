// tracestep fit: does a step fit, what is the least change that makes it fit, and how large a batch
// or context would.
#include <memory>
#include <optional>

#include "base/error.h"
#include "base/log.h"
#include "cli/command.h"
#include "cli/devices.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/time_source.h"
#include "lab/memory/advice.h"
#include "lab/memory/fit.h"
#include "passes/recompute_budget.h"
#include "spec/fields.h"

namespace tracestep::cli {
namespace {

struct FitOptions {
  RunGrid grid{{.model = preset("small"), .shape = {.batch = 4, .context = 512}}};
  OutputOptions output;
  TimeOptions times;
  std::string largest;
  double margin_percent = 100 * kUsualMargin;
};

std::int64_t limit_of(const RunSpec& run, const TimeSource& source) {
  const std::int64_t limit = run.place.memory_limit_bytes;
  if (limit > 0) return limit;
  if (source.usable_bytes > 0) return source.usable_bytes;
  throw Error(
      ErrorCode::kUsage, "--memory-limit", "how much memory there is decides what fits",
      "give what the device has free, such as --memory-limit 78GiB, or its name with --published");
}

// None where the size is to be found and the one that is given does not meet the step's own budget.
std::optional<MemoryCell> cell_of(const Question& asked, bool finds_size) {
  try {
    return MemoryCell{.run = predict_memory(asked.step, asked.traits),
                      .limit_bytes = asked.limit_bytes};
  } catch (const BudgetNotMet& error) {
    if (!finds_size) throw;
    log_warn("{}: {}", label_of(asked.step), error.what());
    return std::nullopt;
  }
}

// What would make it fit, or the least memory that would do and what holds it.
void add_remedies(Question asked, const MemoryCell& cell, std::vector<Table>& tables) {
  asked.asked = figures_of(asked.step, cell.run.program, asked.traits, asked.times);
  const Advice advice = advise(asked);
  tables.push_back(remedy_table(asked, advice));
  if (!advice.least || fit_verdict(cell.run.predicted_peak_bytes, asked) == FitVerdict::kTight) {
    return;
  }
  tables.push_back(least_table(advice));
  tables.push_back(holder_table({.run = predict_memory(advice.least->step, asked.traits)}));
}

int run_fit(const FitOptions& o, std::span<const std::string> arguments) {
  const RunGrid grid = on_timed_device(o.grid, o.times);
  const RunSpec run = run_of(grid, {"cpu", "cuda", "null"}, DeviceUse::kPlan);
  probe_output(o.output);
  const Json environment = environment_of(arguments, run);
  const TimeSource source = time_source(run, o.times, environment);
  const std::optional<Predictor> predictor =
      source.model ? std::optional(source.predictor()) : std::nullopt;
  ProgressLine progress;
  const Question asked{.step = run,
                       .traits = traits_of(run.place),
                       .limit_bytes = limit_of(run, source),
                       .margin = o.margin_percent / 100,
                       .times = predictor ? &*predictor : nullptr,
                       .progress = [&](const std::string& step) { progress.update(step); }};
  asked.progress("planning " + label_of(run));
  const std::optional<MemoryCell> cell = cell_of(asked, !o.largest.empty());
  std::vector<Table> tables;
  if (cell) tables.push_back(fit_table(*cell, asked));
  if (!o.largest.empty()) {
    const Growth growth = o.largest == name_of(Growth::kBatch) ? Growth::kBatch : Growth::kContext;
    tables.push_back(largest_table(run, asked.traits, asked.within_bytes(), growth, asked.times));
  } else if (fit_verdict(cell->run.predicted_peak_bytes, asked) != FitVerdict::kFits) {
    add_remedies(asked, *cell, tables);
  }
  progress.done();
  tables[0].notes.push_back(source.note);
  write_tables(o.output, "tracestep.fit/1", environment, std::move(tables));
  return 0;
}

}  // namespace

Command fit_command() {
  const auto options = std::make_shared<FitOptions>();
  FitOptions& o = *options;
  Command command{
      .name = "fit",
      .section = Section::kPlan,
      .summary = "does a step fit, and what would make it fit",
      .details =
          "Predicts the peak of a step from its program and compares it with a limit; nothing "
          "runs. For a step that does not fit it searches sets of all changes and lists those that "
          "make it fit, with a margin: first those that keep the numbers, and of each severity the "
          "fastest; each with its peak, its price and the command that runs it. Where nothing "
          "fits, "
          "it says how little memory would do and what holds it. --largest finds the largest batch "
          "or context that fits, as asked for and with "
          "changes that keep the task. Times are predicted where this device has been calibrated, "
          "or from the published peaks of another (tracestep predict).",
      .examples = {{"--size 2.7B --context 1024 --memory-limit 80GiB",
                    "does a training step fit a card with 80 GiB"},
                   {"--size xl --context 512 --memory-limit 40GiB --largest batch",
                    "the largest batch, with and without recomputation"},
                   {"--size 2.7B --context 1024 --published H100",
                    "a card that is not here: its memory and its peaks"}}};
  OptionSet& set = command.options;
  set.group("What is to fit");
  set.choice("--largest", o.largest,
             {std::string(name_of(Growth::kBatch)), std::string(name_of(Growth::kContext))},
             "find the largest batch or context that fits");
  set.real("--margin", o.margin_percent, {.min = 0.0, .max = 90.0},
           "percent of the memory to leave free: for other programs, fragments and libraries");
  add_time_options(set, o.times);
  add_fields(set, o.grid, FieldGroup::kStep, Values::kOne);
  add_fields(set, o.grid, FieldGroup::kModel, Values::kOne);
  add_fields(set, o.grid, FieldGroup::kHow, Values::kOne, "cpu; cuda[:N]; null (plans only)");
  add_output_options(set, o.output);
  command.run = [options](std::span<const std::string> arguments) {
    return run_fit(*options, arguments);
  };
  return command;
}

}  // namespace tracestep::cli
