// tracestep precision: what number formats hold and lose, from single sums to whole steps.
#include <algorithm>
#include <memory>

#include "base/error.h"
#include "base/log.h"
#include "cli/cells.h"
#include "cli/command.h"
#include "cli/devices.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/remaining_time.h"
#include "lab/precision/tables.h"
#include "spec/fields.h"

namespace tracestep::cli {
namespace {

const std::vector<std::string> kParts = {"formats", "accumulation", "autocast", "norms", "steps"};

struct PrecisionOptions {
  RunGrid grid{{.model = preset("small"),
                .shape = {.batch = 4, .context = 128},
                .mode = Mode::kForwardBackward}};
  OutputOptions output;
  std::vector<std::string> parts = kParts;
  ErrorSpec error;
  Protocol protocol{.warmup = 2, .steps = 5, .recorded_steps = 1};
  RoundOptions rounds;

  bool has(std::string_view part) const { return std::ranges::find(parts, part) != parts.end(); }
};

std::vector<PrecisionCell> measure(const std::vector<RunSpec>& runs, const PrecisionOptions& o,
                                   Cells& cells) {
  std::vector<PrecisionCell> out;
  constexpr double kSecondsOfErrors = 60;  // against float64, on a part of the model
  const StepNeeds needs{.program = true, .more_seconds = o.error.layers > 0 ? kSecondsOfErrors : 0};
  for (CellResult& result : measure_steps(cells, runs, o.protocol, o.rounds, needs)) {
    out.push_back({std::move(result), {}});
  }
  if (o.error.layers == 0) return out;
  StepErrors errors(make_reference, o.error);
  CellProgress progress(out.size());
  for (PrecisionCell& cell : out) {
    if (cells.is_stopped()) break;
    progress.begin(label_of(cell.result.spec) + " against float64");
    cell.error = cells.besides<std::optional<StepError>>(
        "error", cell.result.spec, [&] { return errors.of(make_device, cell.result.spec.step); });
  }
  return out;
}

int run_precision(const PrecisionOptions& o, Cells& cells) {
  const std::vector<RunSpec> runs = runs_of(o.grid, Takes::kFast, cells.use());
  check_rounds(o.rounds);
  probe_output(o.output);
  const Json environment = cells.environment_of(runs[0]);
  std::vector<PrecisionCell> measured;
  if (o.has("steps")) {
    cells.stop("cells");
    measured = measure(runs, o, cells);
  }
  std::vector<Table> tables;
  if (!cells.makes_tables()) {
    return cells.finish({.output = o.output, .environment = environment});
  }
  if (o.has("formats")) tables.push_back(format_table());
  if (o.has("accumulation")) {
    // If jobs of a cluster have measured, their GPU is not in this machine.
    const bool is_here =
        cells.use() == DeviceUse::kRun || !traits_of(runs[0].place).has_own_memory();
    const auto device = is_here ? make_device(runs[0]) : nullptr;
    tables.push_back(accumulation_table(device.get()));
  }
  if (o.has("autocast")) {
    tables.push_back(autocast_table());
    tables.push_back(precision_class_table());
  }
  if (o.has("norms")) tables.push_back(norm_table(runs[0].seed));
  CellTables out{.output = o.output, .schema = "tracestep.precision/1", .environment = environment};
  if (o.has("steps")) {
    tables.push_back(precision_step_table(measured));
    if (Table parts = precision_component_table(measured); !parts.rows.empty()) {
      tables.push_back(std::move(parts));
    }
    std::vector<CellResult> results;
    for (const PrecisionCell& cell : measured) results.push_back(cell.result);
    cells.add_beside("step", results, tables);
    out.done = results.size();
    out.wanted = runs.size() * static_cast<std::size_t>(o.rounds.repeat);
    out.is_cut = cells.is_stopped();  // errors may be missing
  }
  out.tables = std::move(tables);
  return cells.finish(std::move(out));
}

}  // namespace

Command precision_command() {
  const auto options = std::make_shared<PrecisionOptions>();
  options->grid.offer("precision", {"fp32", "bf16", "fp16"});
  Command command{.name = "precision"};
  OptionSet& set = command.options;
  set.group("What to show");
  set.choices("--part", options->parts, kParts, "parts of the report");
  set.group("The steps");
  add_fields(set, options->grid, FieldGroup::kStep, Values::kGrid);
  add_protocol_flag(set, options->protocol, "steps", "timed steps");
  add_protocol_flag(set, options->protocol, "warmup");
  add_round_options(set, options->rounds);
  add_error_options(set, options->error);
  add_fields(set, options->grid, FieldGroup::kModel, Values::kGrid);
  add_fields(set, options->grid, FieldGroup::kHow, Values::kGrid, "cpu; cuda[:N]");
  add_output_options(set, options->output);
  measures_with(command, options, run_precision);
  command.job_fields = fields_that([](const RunField& field) {
    return field.is_axis && field.name != "precision";  // which is compared
  });
  return command;
}

}  // namespace tracestep::cli
