// tracestep precision: what number formats hold and lose, from single sums to whole steps.
#include <algorithm>
#include <memory>

#include "base/error.h"
#include "base/log.h"
#include "cli/command.h"
#include "cli/devices.h"
#include "cli/grid.h"
#include "cli/output.h"
#include "lab/precision/tables.h"

namespace tracestep::cli {
namespace {

const std::vector<std::string> kParts = {"formats", "accumulation", "autocast", "norms", "steps"};

struct PrecisionOptions {
  GridOptions grid;
  OutputOptions output;
  std::vector<std::string> parts = kParts;
  ErrorSpec error;
  int warmup = 2;
  int steps = 5;

  bool has(std::string_view part) const { return std::ranges::find(parts, part) != parts.end(); }
};

std::vector<PrecisionCell> measure(const PrecisionOptions& o, const StopSignal& stop) {
  const RunOptions& run = o.grid.run;
  RunOptions reference = run;
  reference.device = "reference";
  reference.precisions = RunOptions().precisions;
  reference.memory_limit_bytes = 0;
  reference.tune = false;
  reference.tune_file.clear();
  StepErrors errors([&] { return make_device(reference); }, o.error);
  std::vector<PrecisionCell> out;
  ProgressLine progress;
  const std::vector<GridCell> cells = grid_cells(o.grid);
  for (const GridCell& cell : cells) {
    const CellSpec spec{.step = cell.step,
                        .precision = cell.precision,
                        .executor = run.executor,
                        .warmup = o.warmup,
                        .steps = o.steps,
                        .instrumented_steps = 1,
                        .seed = run.seed};
    progress.update(fmt::format("{}/{}  {} {}", out.size() + 1, cells.size(), spec.step.model.name,
                                spec.precision));
    const auto device = [&] { return make_device(run, spec.precision); };
    PrecisionCell measured{measure_cell(device, spec, &stop), {}};
    if (measured.result.status == "interrupted") break;
    if (o.error.layers > 0) {
      progress.update(fmt::format("{}/{}  {} {} against float64", out.size() + 1, cells.size(),
                                  spec.step.model.name, spec.precision));
      measured.error = errors.of(device, spec);
    }
    out.push_back(std::move(measured));
  }
  return out;
}

int run_precision(const PrecisionOptions& o, std::span<const std::string> arguments) {
  const RunOptions& run = o.grid.run;
  check_device(run, {"cpu", "cuda"});
  probe_output(o.output);
  const Json environment = environment_of(arguments, run);
  std::vector<Table> tables;
  if (o.has("formats")) tables.push_back(format_table());
  if (o.has("accumulation")) {
    const auto device = make_device(run);
    tables.push_back(accumulation_table(device.get()));
  }
  if (o.has("autocast")) {
    tables.push_back(autocast_table());
    tables.push_back(precision_class_table());
  }
  if (o.has("norms")) tables.push_back(norm_table(run.seed));
  int status = 0;
  if (o.has("steps")) {
    const StopSignal stop("the cells measured so far are written");
    const std::vector<PrecisionCell> cells = measure(o, stop);
    if (cells.size() < grid_cells(o.grid).size()) status = stop.exit_status();
    tables.push_back(precision_step_table(cells));
  }
  write_tables(o.output, "tracestep.precision/1", environment, std::move(tables));
  return status;
}

}  // namespace

Command precision_command() {
  const auto options = std::make_shared<PrecisionOptions>();
  options->grid.modes = {"forward-backward"};
  options->grid.contexts = {128};
  options->grid.run.precisions = {"fp32", "bf16", "fp16"};
  Command command{
      .name = "precision",
      .summary = "what number formats hold, lose and save",
      .details =
          "formats: range and spacing, from the types themselves. accumulation: sums that should "
          "be 10 and are not, here and by the device's kernels, with the addition after which they "
          "stall. autocast: the dtype of every value of a small model under mixed precision, and "
          "why. norms: which step of RMS norm and layer norm fails in which format. steps: time, "
          "peak and error against float64 of a model's step in each precision; fp32, bf16 and fp16 "
          "unless --precision says otherwise.",
      .examples = {{"--part accumulation,formats", "sums and formats alone"},
                   {"--part steps --size small,medium --precision fp32,bf16,bf16-pure",
                    "what a step costs and loses"},
                   {"--device cuda --size large --precision fp32,tf32,bf16", "on a GPU"}}};
  OptionSet& set = command.options;
  set.group("What to show");
  set.choices("--part", options->parts, kParts, "all of them");
  set.group("The steps");
  set.choices("--mode", options->grid.modes, kModeNames, "what a step does; forward-backward");
  set.integers("--context", options->grid.contexts, kShapeRange, "tokens in a sequence, T; 128");
  set.integer("--batch", options->grid.batch, kShapeRange, "sequences in a batch, B; 4");
  set.integer("--steps", options->steps, {1, 1000000}, "timed steps; 5");
  set.integer("--warmup", options->warmup, {0, 1000000}, "steps before the clock counts; 2");
  set.integer("--error-layers", options->error.layers, {0, 1000},
              "errors are those of a model of at most so many layers; 2; 0: no errors");
  set.integer("--error-tokens", options->error.tokens, {1, 1 << 20},
              "and of one sequence of at most so many tokens; 16");
  add_model_options(set, options->grid.model);
  add_run_options(set, options->grid.run, "cpu; cuda[:N]");
  add_output_options(set, options->output);
  command.run = [options](std::span<const std::string> arguments) {
    return run_precision(*options, arguments);
  };
  return command;
}

}  // namespace tracestep::cli
