// The tables of a grid of cells; those of one cell are in memory_tables.cpp.
#include <algorithm>

#include "analysis/saved.h"
#include "ir/op_def.h"
#include "lab/memory/tables.h"
#include "lab/memory/totals.h"
#include "lab/report/columns.h"

namespace tracestep {
namespace {

std::size_t at(Category c) {
  return static_cast<std::size_t>(c);
}

Json object_of(const ByCategory& bytes) {
  Json out = Json::object();
  for (Category c : kAllCategories) out[name_of(c)] = bytes[at(c)];
  return out;
}

Json phases_of(const MemoryRun& run) {
  Json out = Json::object();
  for (Phase phase : kAllPhases) {
    out[name_of(phase)] = run.map.by_phase[static_cast<std::size_t>(phase)];
  }
  return out;
}

Json largest_json(const MemoryRun& run) {
  Json out = Json::array();
  for (std::size_t i : largest_buffers(run.map, 10)) {
    const MappedBuffer& b = run.map.buffers[i];
    Json item = Json::object();
    item["path"] = b.path;
    item["op"] = b.op;
    item["source"] = source_of(run.program, b);
    item["bytes"] = b.bytes;
    item["category"] = name_of(b.category);
    item["phase"] = name_of(b.phase);
    item["at_peak"] = b.at_peak;
    item["reason"] = b.reason;
    out.push_back(std::move(item));
  }
  return out;
}

// The peak of the same cell in fp32, if it is in the grid.
const MemoryCell* in_fp32(std::span<const MemoryCell> cells, const MemoryCell& of) {
  const StepSpec& a = of.run.spec.step;
  for (const MemoryCell& cell : cells) {
    const StepSpec& b = cell.run.spec.step;
    if (cell.precision == "fp32" && a.model.name == b.model.name && a.mode == b.mode &&
        a.ops == b.ops && a.attention == b.attention && a.shape.batch == b.shape.batch &&
        a.shape.context == b.shape.context) {
      return &cell;
    }
  }
  return nullptr;
}

// One tensor of the residual stream, as the program has it: the embedding's result.
std::int64_t residual_bytes(const Program& program) {
  for (const Node& node : program.nodes) {
    if (node.origin().path == "token_embeddings" && node.origin().phase == Phase::kForward &&
        node.op->name == "gather") {
      return program.type(node.outputs[0]).bytes();
    }
  }
  return 0;
}

// Without the narrow copies of weights, which have a column of their own.
std::int64_t saved_activation_bytes(const Program& program) {
  std::int64_t out = 0;
  for (const Saved& saved : saved_for_backward(program)) {
    if (program.value(saved.value).role != Role::kWeightCast) out += saved.bytes;
  }
  return out;
}

}  // namespace

Table peak_table(std::span<const MemoryCell> cells) {
  Table table{.name = "memory", .title = "Bytes of a step"};
  const bool accounts =
      std::ranges::any_of(cells, [](const MemoryCell& c) { return c.accounted.has_value(); });
  const auto hidden_unless = [](bool shown, Column column) {
    column.data_only = !shown;
    return column;
  };
  table.columns = {
      text_column("size"),
      int_column("context"),
      int_column("batch"),
      data_only(int_column("vocab")),
      text_column("mode"),
      text_column("precision"),
      text_column("ops"),
      text_column("attention"),
      text_column("device", {}, "empty: predicted, no device was used"),
      text_column("status", {}, "ok, or oom against --memory-limit"),
      data_only(int_column("parameters")),
      data_only(bytes_column("peak_bytes", "peak", "measured where it was, else predicted")),
      bytes_column("predicted_peak_bytes", "predicted peak",
                   "the most that is alive at any moment, as requested, from the program alone"),
      bytes_column("measured_peak_bytes", "measured peak", "the same by the allocator"),
      bytes_column("saved_bytes", "saved",
                   "kept from forward for backward, without narrow copies of weights"),
      bytes_column("weight_cast_bytes", "weight copy",
                   "narrow copies of weights, the most at any moment"),
      bytes_column("residual_bytes", "residual", "one tensor of the residual stream"),
      real_column("versus_fp32_percent", "vs fp32", "%", 1, "of the predicted peak"),
      hidden_unless(accounts, bytes_column("accounted_bytes", "accounted",
                                           "the peak by --account-as, which decides the status")),
      hidden_unless(accounts, text_column("accounted_as", "formula")),
      data_only(bytes_column("reserved_bytes", "reserved", "segments at their most, measured")),
      {.name = "by_category",
       .kind = ColumnKind::kStructured,
       .description = "bytes alive at the predicted peak"},
      {.name = "by_phase",
       .kind = ColumnKind::kStructured,
       .description = "the highest predicted total while a phase runs"},
      {.name = "largest",
       .kind = ColumnKind::kStructured,
       .description = "the ten largest buffers, and why each is alive"}};
  for (const MemoryCell& cell : cells) {
    const MemoryRun& run = cell.run;
    const StepSpec& step = run.spec.step;
    const std::int64_t predicted = run.map.peak_bytes;
    const std::int64_t needed = cell.accounted ? cell.accounted->bytes : predicted;
    const bool fits = run.status == "ok" && (cell.limit_bytes == 0 || needed <= cell.limit_bytes);
    const bool measured = run.measured && run.status == "ok";
    const MemoryCell* fp32 = in_fp32(cells, cell);
    const double ratio = fp32 == nullptr ? 1.0
                                         : static_cast<double>(predicted) /
                                               static_cast<double>(fp32->run.map.peak_bytes);
    table.add_row({step.model.name,
                   step.shape.context,
                   step.shape.batch,
                   step.model.vocab,
                   name_of(step.mode),
                   cell.precision,
                   name_of(step.ops),
                   name_of(step.attention),
                   when(!run.device.empty(), run.device),
                   fits ? "ok" : "oom",
                   run.parameters,
                   measured ? run.peak_bytes : predicted,
                   predicted,
                   when(measured, run.peak_bytes),
                   saved_activation_bytes(run.program),
                   predicted_totals(run).highest[at(Category::kWeightCast)],
                   residual_bytes(run.program),
                   when(fp32 != nullptr && fp32 != &cell, 100.0 * (ratio - 1.0)),
                   cell.accounted ? Json(cell.accounted->bytes) : Json(),
                   cell.accounted ? Json(cell.accounted->formula) : Json(),
                   when(measured, run.peak_reserved_bytes),
                   object_of(run.map.by_category),
                   phases_of(run),
                   largest_json(run)});
  }
  return table;
}

Table category_grid(std::span<const MemoryCell> cells) {
  Table table{.name = "by_category",
              .title = "Bytes alive at the predicted peak",
              .columns = {text_column("cell")}};
  for (Category c : kAllCategories) {
    table.columns.push_back(bytes_column(std::string(name_of(c)), words_of(c)));
  }
  for (const MemoryCell& cell : cells) {
    std::vector<Json> row{label_of(cell)};
    for (std::int64_t bytes : cell.run.map.by_category) row.emplace_back(bytes);
    table.add_row(std::move(row));
  }
  return table;
}

}  // namespace tracestep
