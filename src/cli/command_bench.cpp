// tracestep bench: how long a step takes, and how many bytes, over a grid of cells.
#include <algorithm>
#include <memory>

#include "base/error.h"
#include "base/log.h"
#include "cli/command.h"
#include "cli/cuda.h"
#include "cli/devices.h"
#include "cli/grid.h"
#include "cli/nsys_hint.h"
#include "cli/output.h"
#include "cli/resume_file.h"
#include "lab/measure/cell.h"

namespace tracestep::cli {
namespace {

constexpr const char* kSchema = "tracestep.bench/1";

struct BenchOptions {
  GridOptions grid;
  OutputOptions output;
  std::filesystem::path resume;
  int warmup = 5;
  int steps = 10;
  bool nsys_hint = false;
};

CellSpec spec_of(const GridCell& cell, const BenchOptions& options) {
  return {.step = cell.step,
          .precision = cell.precision,
          .executor = options.grid.run.executor,
          .warmup = options.warmup,
          .steps = options.steps,
          .seed = options.grid.run.seed};
}

// Everything the numbers of a row depend on, apart from the machine.
Json cell_key(const CellSpec& spec, const RunOptions& run, const Json& environment) {
  const ModelConfig& m = spec.step.model;
  Json key = Json::object();
  key["size"] = m.name;
  key["d_model"] = m.d_model;
  key["d_ff"] = m.d_ff;
  key["layers"] = m.layers;
  key["heads"] = m.heads;
  key["vocab"] = m.vocab;
  key["context"] = spec.step.shape.context;
  key["batch"] = spec.step.shape.batch;
  key["mode"] = name_of(spec.step.mode);
  key["precision"] = spec.precision;
  key["ops"] = name_of(spec.step.ops);
  key["attention"] = run.attention;
  key["executor"] = spec.executor;
  key["device"] = run.device;
  key["threads"] = environment.at("threads");
  key["memory_limit_bytes"] = run.memory_limit_bytes;
  key["seed"] = run.seed;
  key["warmup"] = spec.warmup;
  key["steps"] = spec.steps;
  key["tool"] = environment.at("tool");
  if (const Json* file = environment.find("tuning_file")) key["tuning_file"] = *file;
  return key;
}

std::vector<Column> columns() {
  std::vector<Column> out = cell_columns();
  out.push_back({.name = "cell",
                 .kind = ColumnKind::kStructured,
                 .description = "all parameters of the row; --resume finds rows by it",
                 .data_only = true});
  return out;
}

std::string label(const CellSpec& spec) {
  return fmt::format("{} context {} {} {} {}", spec.step.model.name, spec.step.shape.context,
                     name_of(spec.step.mode), spec.precision, name_of(spec.step.ops));
}

// A row that was measured on a device held back says so where people read it.
void note_throttling(Table& table, const std::string& label) {
  const auto column = std::ranges::find(table.columns, "throttled", &Column::name);
  const Json& why = table.rows.back()[static_cast<std::size_t>(column - table.columns.begin())];
  if (why.is_null()) return;
  table.notes.push_back(fmt::format("{}: measured while throttled: {}", label, why.as_string()));
}

struct Measured {
  Table table;
  std::string oom_detail = {};  // of the last cell that ran out of memory
};

// The rows of all cells, or of those that were finished when `stop` came.
Measured measure_grid(const std::vector<GridCell>& cells, const BenchOptions& options,
                      const Json& environment, const StopSignal& stop) {
  const RunOptions& run = options.grid.run;
  Measured out{
      .table = {.name = "bench", .title = "Time and memory of a step", .columns = columns()}};
  ResumeFile finished(options.resume, out.table.columns, kSchema);
  ProgressLine progress;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    const CellSpec spec = spec_of(cells[i], options);
    const Json key = cell_key(spec, run, environment);
    if (const std::vector<Json>* row = finished.find(key)) {
      out.table.add_row(*row);
      note_throttling(out.table, label(spec));
      continue;
    }
    progress.update(fmt::format("{}/{}  {}", i + 1, cells.size(), label(spec)));
    const CellResult result =
        measure_cell([&] { return make_device(run, spec.precision); }, spec, &stop);
    if (result.status == "interrupted") break;
    std::vector<Json> row = cell_row(result);
    row.push_back(key);
    finished.add(row);
    out.table.add_row(std::move(row));
    note_throttling(out.table, label(spec));
    if (result.status == "oom") out.oom_detail = result.detail;
  }
  return out;
}

void print_nsys_hint(const BenchOptions& options, std::span<const std::string> arguments) {
  if (!cuda_index(options.grid.run.device)) {
    throw Error(ErrorCode::kUsage, "--nsys-hint",
                fmt::format("nsys sees what a GPU does; this runs on {}", options.grid.run.device),
                "add --device cuda");
  }
  std::error_code ignored;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", ignored);
  const std::size_t cells = grid_cells(options.grid).size();
  write_text(nsys_command(self.empty() ? "tracestep" : self, arguments, cells) + "\n", {});
}

int run_bench(const BenchOptions& options, std::span<const std::string> arguments) {
  const RunOptions& run = options.grid.run;
  const DeviceUse use = options.nsys_hint ? DeviceUse::kPlan : DeviceUse::kRun;
  check_device(run, {"cpu", "cuda", "reference", "null"}, use);
  if (options.nsys_hint) return print_nsys_hint(options, arguments), 0;
  probe_output(options.output);
  const std::vector<GridCell> cells = grid_cells(options.grid);
  const Json environment = environment_of(arguments, options.grid.run);
  const StopSignal stop;
  Measured measured = measure_grid(cells, options, environment, stop);
  write_tables(options.output, kSchema, environment, {measured.table});
  if (measured.table.rows.size() < cells.size()) {
    log_warn("stopped by a signal after {} of {} rows{}", measured.table.rows.size(), cells.size(),
             options.resume.empty() ? "; with --resume FILE a grid can go on" : "");
    return stop.exit_status();
  }
  if (cells.size() > 1 || measured.oom_detail.empty()) return 0;
  throw Error(ErrorCode::kOutOfMemory, "bench", measured.oom_detail,
              "try a smaller --batch or --context, or a larger --memory-limit");
}

}  // namespace

Command bench_command() {
  const auto options = std::make_shared<BenchOptions>();
  Command command{
      .name = "bench",
      .summary = "how long does a step take, and how many bytes",
      .details =
          "Measures every combination of sizes, contexts, modes, precisions and "
          "granularities: warm-up steps apart, one sample per step, by four clocks, with "
          "the peak of requested memory beside the predicted one. A row that runs out of "
          "memory says oom, and the sweep goes on; Ctrl-C ends it with the rows that are "
          "done. inference keeps nothing for backward; "
          "forward keeps what backward would need.",
      .examples = {{"--size small --context 128 --mode forward,forward-backward,step",
                    "the three ways to run a small model"},
                   {"--size tiny --context 128 --ops primitive,fused --format markdown",
                    "what composite kernels save"},
                   {"--size small,medium,large --context 128,256 --resume grid.jsonl",
                    "a grid that can be interrupted and called again"}}};
  OptionSet& set = command.options;
  set.group("What to measure");
  set.integer("--warmup", options->warmup, {0, 1000000}, "steps before the clock counts; 5");
  set.integer("--steps", options->steps, {1, 1000000}, "timed steps, one sample each; 10");
  set.path("--resume", "FILE", options->resume,
           "keep finished rows here and skip those that are there (JSON lines, or a JSON result)");
  set.toggle("--nsys-hint", options->nsys_hint,
             "print the nsys command line that records just the timed steps, and end");
  add_grid_options(set, options->grid);
  add_output_options(set, options->output);
  command.run = [options](std::span<const std::string> arguments) {
    return run_bench(*options, arguments);
  };
  return command;
}

}  // namespace tracestep::cli
