// tracestep throughput: finds the batch that is large enough, by the tokens per second of each.
#include <memory>

#include "cli/cells.h"
#include "cli/command.h"
#include "cli/devices.h"
#include "cli/hints.h"
#include "cli/options.h"
#include "cli/output.h"
#include "lab/measure/run_columns.h"
#include "lab/measure/validity.h"
#include "lab/time/cell.h"
#include "spec/axes.h"
#include "spec/check_run.h"

namespace tracestep::cli {
namespace {

struct ThroughputOptions {
  RunGrid grid{{.model = preset("small"), .shape = {.context = 128}}};
  std::vector<std::int64_t> batches{1, 2, 4, 8, 16, 32};
  Protocol protocol;
  RoundOptions rounds;
  OutputOptions output;
};

// The product of runs and batches, with the smallest batch first.
std::vector<RunSpec> runs_of(const ThroughputOptions& o, DeviceUse use) {
  const auto batch = [](RunSpec & run) -> auto& {
    return run.shape.batch;
  };
  std::vector<RunSpec> out =
      product(runs_of(o.grid, Takes::kPlanner, use), {axis<RunSpec>(o.batches, batch)});
  for (const RunSpec& run : out) check_run(run);
  return out;
}

// The table of cells, each row with figures of its own cell alone: their page compares them, so
// that rows measured apart (--resume, --processes) give the same answer.
Table throughput_table(const std::vector<CellResult>& results, const Json& environment,
                       const Cells& cells) {
  Table out{.name = "throughput", .title = "Tokens per second by batch", .columns = cell_columns()};
  out.columns.push_back(verdict_column());
  for (const CellResult& result : results) {
    std::vector<Json> row = cell_row(result);
    row.emplace_back();
    out.add_row(std::move(row));
  }
  add_verdicts(out, cells.rows_of(out, environment));
  show_unusual(out);
  return out;
}

int run_throughput(const ThroughputOptions& o, Cells& cells) {
  const std::vector<RunSpec> runs = runs_of(o, cells.use());
  check_rounds(o.rounds);
  probe_output(o.output);
  const Json environment = cells.environment_of(runs[0]);
  cells.stop("batches");
  const std::vector<CellResult> results =
      measure_steps(cells, runs, o.protocol, o.rounds, {.roof = std::nullopt});
  CellTables out{.output = o.output,
                 .schema = "tracestep.throughput/1",
                 .environment = environment,
                 .tables = {throughput_table(results, environment, cells)},
                 .done = results.size(),
                 .wanted = runs.size()};
  if (runs.size() == 1 && results.size() == 1 && results[0].status == Status::kOutOfMemory) {
    out.last_words = Error(ErrorCode::kOutOfMemory, "throughput", results[0].detail,
                           oom_hint(runs[0], results[0].lack));
  }
  return cells.finish(std::move(out));
}

}  // namespace

Command throughput_command() {
  const auto options = std::make_shared<ThroughputOptions>();
  Command command{.name = "throughput"};
  OptionSet& set = command.options;
  set.group("What to measure");
  set.integers("--batch", options->batches, kShapeRange, "sequences in a batch, B");
  set.lists_cells();
  for (const ProtocolField& field : protocol_fields()) add_flag(set, options->protocol, field);
  set.integer(
      "--rounds", options->rounds.rounds, {1, 1000},
      "measure all batches in so many rounds, in an order drawn by lot, each prepared anew");
  for (const RunField& field : run_fields()) {
    if (field.group != FieldGroup::kStep || field.name == "batch") continue;
    add_field(set, options->grid, field.name, Values::kGrid);
  }
  add_fields(set, options->grid, FieldGroup::kModel, Values::kGrid);
  add_fields(set, options->grid, FieldGroup::kHow, Values::kGrid, "cpu; cuda[:N]; null (bytes)");
  add_output_options(set, options->output);
  measures_with(command, options, run_throughput);
  return command;
}

}  // namespace tracestep::cli
