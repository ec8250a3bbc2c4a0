// tracestep memory: where the bytes of a step go, worked out from its program without a device.
#include <algorithm>
#include <memory>

#include "analysis/memory_map.h"
#include "base/error.h"
#include "cli/command.h"
#include "cli/devices.h"
#include "cli/grid.h"
#include "cli/output.h"
#include "train/step_program.h"

namespace tracestep::cli {
namespace {

constexpr std::size_t kLargest = 10;

struct MemoryOptions {
  GridOptions grid;
  OutputOptions output;
  bool predict = false;
};

Json by_category(const MemoryMap& map) {
  Json out = Json::object();
  for (Category c : kAllCategories) {
    out[name_of(c)] = map.by_category[static_cast<std::size_t>(c)];
  }
  return out;
}

Json by_phase(const MemoryMap& map) {
  Json out = Json::object();
  for (Phase phase : kAllPhases) {
    out[name_of(phase)] = map.by_phase[static_cast<std::size_t>(phase)];
  }
  return out;
}

// The largest buffers of the whole step; of equal ones the earliest.
std::vector<MappedBuffer> largest(const MemoryMap& map) {
  std::vector<MappedBuffer> out = map.buffers;
  std::ranges::stable_sort(out, std::greater{}, &MappedBuffer::bytes);
  out.resize(std::min(out.size(), kLargest));
  return out;
}

Json as_json(const MappedBuffer& b) {
  Json out = Json::object();
  out["path"] = b.path;
  out["op"] = b.op;
  out["bytes"] = b.bytes;
  out["category"] = name_of(b.category);
  out["phase"] = name_of(b.phase);
  out["at_peak"] = b.at_peak;
  out["reason"] = b.reason;
  return out;
}

Table peak_table() {
  return {.name = "memory",
          .title = "Predicted bytes of a step",
          .columns = {
              {.name = "size"},
              {.name = "context", .kind = ColumnKind::kInt},
              {.name = "batch", .kind = ColumnKind::kInt},
              {.name = "vocab", .kind = ColumnKind::kInt},
              {.name = "mode"},
              {.name = "precision"},
              {.name = "ops"},
              {.name = "status", .description = "ok, or oom against --memory-limit"},
              {.name = "parameters", .kind = ColumnKind::kInt},
              {.name = "peak_bytes",
               .title = "peak",
               .kind = ColumnKind::kBytes,
               .description = "the most that is alive at any moment, as requested"},
              {.name = "by_category",
               .kind = ColumnKind::kStructured,
               .description = "bytes alive at the peak"},
              {.name = "by_phase",
               .kind = ColumnKind::kStructured,
               .description = "the highest total while a phase runs"},
              {.name = "largest",
               .kind = ColumnKind::kStructured,
               .description = "the ten largest buffers, and why each is alive"},
          }};
}

std::string cell_name(const GridCell& cell) {
  return fmt::format("{} {} {} {} {}", cell.step.model.name, cell.step.shape.context,
                     name_of(cell.step.mode), cell.precision, name_of(cell.step.ops));
}

Table category_table() {
  Table table{
      .name = "by_category", .title = "Bytes alive at the peak", .columns = {{.name = "cell"}}};
  for (Category c : kAllCategories) {
    std::string title(name_of(c));
    std::ranges::replace(title, '_', ' ');
    table.columns.push_back(
        {.name = std::string(name_of(c)), .title = title, .kind = ColumnKind::kBytes});
  }
  return table;
}

Table largest_table(const std::vector<MappedBuffer>& buffers) {
  Table table{.name = "largest",
              .title = "The largest buffers",
              .columns = {{.name = "path"},
                          {.name = "op"},
                          {.name = "bytes", .kind = ColumnKind::kBytes},
                          {.name = "category"},
                          {.name = "phase"},
                          {.name = "at_peak", .title = "at peak", .kind = ColumnKind::kBool},
                          {.name = "reason"}}};
  for (const MappedBuffer& b : buffers) {
    table.add_row(
        {b.path, b.op, b.bytes, name_of(b.category), name_of(b.phase), b.at_peak, b.reason});
  }
  return table;
}

void add_cell(const GridCell& cell, const MemoryOptions& options, std::vector<Table>& tables) {
  const Program program = step_program(cell.step);
  const MemoryMap map = map_memory(program, traits_of(options.grid.run));
  const std::vector<MappedBuffer> top = largest(map);
  Json top_json = Json::array();
  for (const MappedBuffer& b : top) top_json.push_back(as_json(b));
  const std::int64_t limit = options.grid.run.memory_limit_bytes;
  const StepSpec& step = cell.step;
  tables[0].add_row({step.model.name, step.shape.context, step.shape.batch, step.model.vocab,
                     name_of(step.mode), cell.precision, name_of(step.ops),
                     limit > 0 && map.peak_bytes > limit ? "oom" : "ok", parameter_count(program),
                     map.peak_bytes, by_category(map), by_phase(map), std::move(top_json)});
  std::vector<Json> row{cell_name(cell)};
  for (std::int64_t bytes : map.by_category) row.emplace_back(bytes);
  tables[1].add_row(std::move(row));
  tables[2] = largest_table(top);
}

int run_memory(const MemoryOptions& options, std::span<const std::string> arguments) {
  if (!options.predict) {
    throw Error(ErrorCode::kUsage, "memory", "measuring on a device is not available here",
                "add --predict; bench shows the measured peak beside the predicted one");
  }
  check_device(options.grid.run, {"cpu", "cuda", "null"}, DeviceUse::kPlan);
  probe_output(options.output);
  const std::vector<GridCell> cells = grid_cells(options.grid);
  std::vector<Table> tables{peak_table(), category_table(), {}};
  for (const GridCell& cell : cells) add_cell(cell, options, tables);
  if (cells.size() > 1) tables.pop_back();  // the largest buffers of one cell only
  // In csv and json the first table has it all.
  const Format format = options.output.format;
  if (format == Format::kCsv || format == Format::kJson) tables.resize(1);
  write_tables(options.output, "tracestep.memory/1", environment_of(arguments, options.grid.run),
               std::move(tables));
  return 0;
}

}  // namespace

Command memory_command() {
  const auto options = std::make_shared<MemoryOptions>();
  Command command{
      .name = "memory",
      .summary = "where do the bytes of a step go",
      .details =
          "Predicts the peak of a step, to the byte of requested memory, from its program: "
          "no device is touched and nothing is computed. One row per combination of sizes, "
          "contexts, modes, precisions and granularities.",
      .examples = {{"--predict --size 2.7B --context 512 --mode step",
                    "one step of the 2.7B model, with its largest buffers"},
                   {"--predict --size small,medium,large --mode inference,step --format csv",
                    "a table for a spreadsheet"},
                   {"--predict --size xl --memory-limit 80GiB --batch 16",
                    "would it fit? status says ok or oom"}}};
  command.options.group("What to map");
  command.options.toggle("--predict", options->predict, "work the bytes out from the program");
  add_grid_options(command.options, options->grid);
  add_output_options(command.options, options->output);
  command.run = [options](std::span<const std::string> arguments) {
    return run_memory(*options, arguments);
  };
  return command;
}

}  // namespace tracestep::cli
