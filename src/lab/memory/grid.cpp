// The tables of a grid of cells; those of one cell are in tables.cpp.
#include "lab/memory/tables.h"

#include <algorithm>
#include <numeric>

#include "analysis/assumptions.h"
#include "analysis/cost.h"
#include "analysis/saved.h"
#include "ir/op_def.h"
#include "lab/measure/run_columns.h"
#include "lab/measure/validity.h"
#include "lab/memory/totals.h"
#include "lab/report/fields.h"
#include "lab/report/known_columns.h"
#include "nn/scopes.h"
#include "spec/fields.h"

namespace tracestep {
namespace {

Json object_of(const ByCategory& bytes) {
  Json out = Json::object();
  for (Category c : kAll<Category>) out[name_of(c)] = bytes[at(c)];
  return out;
}

Json phases_of(const MemoryRun& run) {
  Json out = Json::object();
  for (Phase phase : kAll<Phase>) {
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

// Returns the bytes of a tensor of the residual stream in the program: the embedding's result.
std::int64_t residual_bytes(const Program& program) {
  for (const Node& node : program.nodes) {
    if (node.origin().path == scope::kEmbedding && node.origin().phase == Phase::kForward &&
        node.op->name == "gather") {
      return program.type(node.outputs[0]).bytes();
    }
  }
  return 0;
}

// Returns the bytes saved for backward, without narrow copies of weights, which have a column.
std::int64_t saved_activation_bytes(const Program& program) {
  std::int64_t out = 0;
  for (const Saved& saved : saved_for_backward(program)) {
    if (program.value(saved.value).role != Role::kWeightCast) out += saved.bytes;
  }
  return out;
}

// A cell of a grid, and the cell that differs only by being in fp32; nullptr: the grid has none.
struct PeakRow {
  const MemoryCell& cell;
  const MemoryCell* fp32;

  const MemoryRun& run() const { return cell.run; }
  const RunSpec& step() const { return cell.run.spec.step; }
  std::int64_t predicted() const { return run().predicted_peak_bytes; }
  // Returns the bytes as a cell, which is empty where the run has no program.
  Json when_planned(std::int64_t bytes) const { return when(run().has_program(), bytes); }
  bool is_measured() const { return run().measured && run().status == Status::kOk; }
  bool fits() const {
    const std::int64_t needed = cell.accounted ? cell.accounted->bytes : predicted();
    return run().status == Status::kOk && (cell.limit_bytes == 0 || needed <= cell.limit_bytes);
  }
  double versus_fp32_percent() const {
    return 100.0 *
           (static_cast<double>(predicted()) / static_cast<double>(fp32->run.predicted_peak_bytes) -
            1.0);
  }
};

using PeakRowRef = const PeakRow&;

Fields<PeakRow> cell_fields() {
  Fields<PeakRow> out{};
  out.add(program_columns(), [](PeakRowRef r) { return &r.step(); });
  return out.add({{col::device("empty: predicted, no device was used"),
                   [](PeakRowRef r) { return or_null(r.run().device); }},
                  {col::status("ok, or oom against the memory limit"),
                   [](PeakRowRef r) { return r.fits() ? "ok" : "oom"; }},
                  {data_only(col::limit_bytes("what the run may use; empty: all there is")),
                   [](PeakRowRef r) { return when(r.cell.limit_bytes > 0, r.cell.limit_bytes); }},
                  {verdict_column(), [](PeakRowRef) { return Json(); }},
                  {data_only(col::parameters), [](PeakRowRef r) { return r.run().parameters; }}});
}

Fields<PeakRow> byte_fields() {
  return {{data_only(as_exact(col::peak_bytes("measured where it was, else predicted"))),
           [](PeakRowRef r) { return r.is_measured() ? r.run().peak_bytes : r.predicted(); }},
          {col::predicted_peak_bytes(
               "the most that is alive at any moment, as requested, from the program alone"),
           [](PeakRowRef r) { return r.predicted(); }},
          {bytes_column("measured_peak_bytes", "measured peak", "the same by the allocator"),
           [](PeakRowRef r) { return when(r.is_measured(), r.run().peak_bytes); }},
          {as_exact(col::saved_bytes(
               "kept from forward for backward, without narrow copies of weights")),
           [](PeakRowRef r) {
             return r.when_planned(saved_activation_bytes(r.run().program) /
                                   micro_batches_of(r.step()));
           }},
          {as_exact(bytes_column("weight_cast_bytes", "weight copy",
                                 "narrow copies of weights, the most at any moment")),
           [](PeakRowRef r) {
             return r.when_planned(predicted_totals(r.run()).highest[at(Category::kWeightCast)]);
           }},
          {bytes_column("residual_bytes", "residual", "one tensor of the residual stream"),
           [](PeakRowRef r) { return r.when_planned(residual_bytes(r.run().program)); }},
          {real_column("versus_fp32_percent", "vs fp32", "%", 1, "of the predicted peak"),
           [](PeakRowRef r) {
             const bool has_other = r.fp32 != nullptr && r.fp32 != &r.cell &&
                                    r.run().has_program() && r.fp32->run.has_program();
             return has_other ? Json(r.versus_fp32_percent()) : Json();
           }}};
}

Column shown_if(bool shown, Column column) {
  column.data_only = !shown;
  return column;
}

// Returns the columns of the host's bytes. `shown`: whether any step has some.
Fields<PeakRow> host_byte_fields(bool shown) {
  return {{shown_if(shown, col::host_bytes("what the step keeps there, from the program alone")),
           [](PeakRowRef r) { return host_bytes(r.run().program); }},
          {shown_if(shown, bytes_column("measured_host_bytes", "measured there",
                                        "the same by the allocator of that memory")),
           [](PeakRowRef r) { return when(r.is_measured(), r.run().host_bytes); }}};
}

// Returns the columns of a formula's peak. `shown`: whether such a formula decides the status.
Fields<PeakRow> accounted_fields(bool shown) {
  return {{shown_if(shown, bytes_column("accounted_bytes", "accounted",
                                        "the peak by the formula, which decides the status")),
           [](PeakRowRef r) { return r.cell.accounted ? Json(r.cell.accounted->bytes) : Json(); }},
          {shown_if(shown, text_column("accounted_as", "formula")), [](PeakRowRef r) {
             return r.cell.accounted ? Json(r.cell.accounted->formula) : Json();
           }}};
}

Fields<PeakRow> detail_fields() {
  return {{data_only(col::reserved_bytes("segments at their most, measured")),
           [](PeakRowRef r) { return when(r.is_measured(), r.run().peak_reserved_bytes); }},
          {data_only(col::assumes("of the device, by a prediction, beyond what is known of it")),
           [](PeakRowRef r) {
             return r.run().computes ? Json() : or_null(assumptions_of(r.run().program));
           }},
          {structured_column("by_category", "bytes alive at the predicted peak"),
           [](PeakRowRef r) { return object_of(r.run().map.by_category); }},
          {structured_column("by_phase", "the highest predicted total while a phase runs"),
           [](PeakRowRef r) { return phases_of(r.run()); }},
          {structured_column("largest", "the ten largest buffers, and why each is alive"),
           [](PeakRowRef r) { return largest_json(r.run()); }}};
}

// Makes a row of the measured figures, under the names that the validity checker reads. A step that
// was only predicted has nothing to be judged.
ResultRow judged_row(const MemoryRun& run) {
  Json row = key_of(run.spec.step);
  row["device"] = run.device;
  row["status"] = run.measured ? name_of(run.status) : "predicted";
  if (!run.measured || run.status != Status::kOk) return ResultRow(std::move(row));
  row["parameters"] = run.parameters;
  row["peak_bytes"] = run.peak_bytes;
  row["predicted_peak_bytes"] = run.predicted_peak_bytes;
  row["saved_bytes"] = saved_bytes(run.program) / micro_batches_of(run.spec.step);
  if (run.step_ms <= 0) return ResultRow(std::move(row));
  const std::int64_t flops = gemm_flops(run.program);
  row["flops"] = flops;
  row["tflops"] = static_cast<double>(flops) / run.step_ms * 1e-9;
  row["wall_ms"] = run.step_ms;
  row["instrumented_wall_ms"] = run.recorded_step_ms;
  if (!run.node_ns.empty()) {
    row["device_busy_ms"] = static_cast<double>(std::accumulate(
                                run.node_ns.begin(), run.node_ns.end(), std::int64_t{0})) *
                            1e-6;
  }
  return ResultRow(std::move(row));
}

}  // namespace

const MemoryCell* in_fp32(std::span<const MemoryCell> cells, const MemoryCell& of) {
  for (const MemoryCell& cell : cells) {
    const RunSpec& step = cell.run.spec.step;
    if (step.precision == Precision() && same_but(step, of.run.spec.step, {"precision"})) {
      return &cell;
    }
  }
  return nullptr;
}

Table peak_table(std::span<const MemoryCell> cells) {
  const bool accounts =
      std::ranges::any_of(cells, [](const MemoryCell& c) { return c.accounted.has_value(); });
  const bool uses_host =
      std::ranges::any_of(cells, [](const MemoryCell& c) { return host_bytes(c.run.program) > 0; });
  Fields<PeakRow> fields = cell_fields();
  fields.add(byte_fields()).add(host_byte_fields(uses_host));
  fields.add(accounted_fields(accounts)).add(detail_fields());
  fields.add(host_columns(),
             [](PeakRowRef r) { return r.is_measured() ? &r.run().host : nullptr; });
  std::vector<PeakRow> rows;
  for (const MemoryCell& cell : cells) rows.push_back({cell, in_fp32(cells, cell)});
  Table table = table_of("memory", "Bytes of a step", fields, rows);
  if (std::ranges::none_of(cells, [](const MemoryCell& c) { return c.run.measured; })) {
    Column& status = *std::ranges::find(table.columns, "status", &Column::name);
    status = without_run(std::move(status));
  }
  show_unusual(table);
  for (const MemoryCell& cell : cells) {
    if (cell.run.has_program()) continue;
    table.notes.push_back(fmt::format("{}: {}", label_of(cell), cell.run.detail));
  }
  std::vector<ResultRow> judged;
  for (const MemoryCell& cell : cells) judged.push_back(judged_row(cell.run));
  add_verdicts(table, judged);
  return table;
}

Table category_grid(std::span<const MemoryCell> cells) {
  Table table{.name = "by_category",
              .title = "Bytes alive at the predicted peak",
              .columns = {text_column("cell")}};
  for (Category c : kAll<Category>) {
    table.columns.push_back(bytes_column(std::string(name_of(c)), words_of(c)));
  }
  for (const MemoryCell& cell : cells) {
    if (!cell.run.has_program()) continue;
    std::vector<Json> row{label_of(cell)};
    for (std::int64_t bytes : cell.run.map.by_category) row.emplace_back(bytes);
    table.add_row(std::move(row));
  }
  return table;
}

}  // namespace tracestep
