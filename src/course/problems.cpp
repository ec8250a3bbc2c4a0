#include "course/problems.h"

#include <algorithm>
#include <map>

#include <fmt/ranges.h>

#include "base/error.h"
#include "base/log.h"
#include "lab/pages/pivot.h"
#include "lab/report/columns.h"
#include "lab/report/digits.h"

namespace tracestep {
namespace {

constexpr std::pair<std::string_view, std::string_view> kNames[] = {
    {"1.1.3 b", "benchmarking_script (b)"},
    {"1.1.3 c", "benchmarking_script (c)"},
    {"1.1.4 a", "nsys_profile (a)"},
    {"1.1.4 b", "nsys_profile (b)"},
    {"1.1.4 c", "nsys_profile (c)"},
    {"1.1.4 d", "nsys_profile (d)"},
    {"1.1.4 e", "nsys_profile (e)"},
    {"1.1.5", "mixed_precision_accumulation"},
    {"1.1.5 a", "benchmarking_mixed_precision (a)"},
    {"1.1.5 b", "benchmarking_mixed_precision (b)"},
    {"1.1.5 c", "benchmarking_mixed_precision (c)"},
    {"1.1.6 a", "memory_profiling (a)"},
    {"1.1.6 b", "memory_profiling (b)"},
    {"1.1.6 c", "memory_profiling (c)"},
    {"1.1.6 d", "memory_profiling (d)"},
    {"1.1.6 e", "memory_profiling (e)"},
    {"1.2.1 a", "pytorch_attention (a)"},
    {"1.2.2 a", "torch_compile (a)"},
    {"1.2.2 b", "torch_compile (b)"},
    {"1.3", "flash_benchmarking (a)"},
    {"2.1", "distributed_communication_single_node"},
    {"2.2", "naive_ddp_benchmarking"},
    {"2.3.1", "minimal_ddp_flat_benchmarking"},
    {"2.3.2", "ddp_overlap_individual_parameters_benchmarking (a)"},
    {"2.3.3", "ddp_bucketed_benchmarking (a)"},
    {"2.4", "communication_accounting"},
    {"3", "optimizer_state_sharding_accounting (a)"}};

const Table* table_named(std::span<const Table> tables, std::string_view name) {
  const auto found = std::ranges::find(tables, name, &Table::name);
  return found == tables.end() ? nullptr : &*found;
}

// --- what an answer is of ------------------------------------------------------------------------
// A key column of rows, and the words in which runs_of_answer() gives its values.
struct KeyWords {
  const char* column;
  std::string words;
};
const KeyWords kKeys[] = {
    {"size", "{}"},        {"vocab", "vocabulary {}"},    {"context", "context {}"},
    {"width", "width {}"}, {"batch", "batch {}"},         {"precision", "{}"},
    {"ops", "{} ops"},     {"attention", "{} attention"}, {"executor", "{}"},
    {"mode", "{}"},        {"pass", "pass {}"},           {"ranks", "{} ranks"}};

// Calls `visit(ref, column, cell)` for each cell of these rows.
template <class Visit>
void for_each_cell(std::span<const RowRef> rows, std::span<const Table> tables,
                   const Visit& visit) {
  for (const RowRef& ref : rows) {
    const Table* const table = table_named(tables, ref.table);
    if (table == nullptr) continue;
    for (std::size_t i = 0; i < table->columns.size(); ++i) {
      visit(ref, table->columns[i], table->rows[ref.row][i]);
    }
  }
}

// The rows of tables from which the lines of the answer's own table are made.
std::vector<RowRef> rows_in_lines(const Answer& answer, std::span<const Table> tables) {
  std::vector<RowRef> out;
  for (const Table& table : tables) {
    std::vector<std::string_view> formulas;
    for (const std::vector<Text>& line : answer.lines) {
      for (const Text& cell : line) {
        for (const Piece& piece : cell.pieces()) {
          if (piece.formula.find(table.name + "[") != piece.formula.npos)
            formulas.emplace_back(piece.formula);
        }
      }
    }
    for (std::size_t row = 0; row < table.rows.size() && !formulas.empty(); ++row) {
      const bool is_shown = std::ranges::any_of(formulas, [&](std::string_view formula) {
        return formula_has_row(formula, table.name, row);
      });
      if (is_shown) out.push_back({table.name, row, {}});
    }
  }
  return out;
}

// --- tables --------------------------------------------------------------------------------------
// Columns, and the values that rows must have in them.
using Where = std::vector<std::pair<std::string, std::string>>;

struct Wanted {
  std::string_view number;
  std::vector<std::string_view> tables;
  pages::Pivot pivot;
  std::string_view replaces = {};
};

Where plus(Where where, std::string key, std::string value) {
  where.emplace_back(std::move(key), std::move(value));
  return where;
}

void add_attention(std::vector<Wanted>& out) {
  for (const auto& [title, value] : {std::pair{"forward", "forward_samples_ms"},
                                     {"backward", "backward_samples_ms"},
                                     {"bytes before backward", "before_backward_bytes"}}) {
    const bool is_time = std::string_view(value).ends_with("ms");
    out.push_back({"1.2.1 a",
                   {"attention"},
                   {.title = fmt::format("naive attention, {}, fp32, width by context{}", title,
                                         is_time ? ": mean ± deviation" : ""),
                    .down = {"width"},
                    .across = "context",
                    .value = value,
                    .where = {{"attention", "naive"}, {"saved", "weights"}, {"precision", "fp32"}}},
                   is_time ? "attention-times" : "attention-bytes"});
  }
  for (const auto& [title, value] : {std::pair{"forward", "forward_samples_ms"},
                                     {"backward", "backward_samples_ms"},
                                     {"both passes", "whole_samples_ms"}}) {
    for (const char* precision : {"fp32", "bf16"}) {
      out.push_back({"1.3",
                     {"attention"},
                     {.title = fmt::format("{}, {}, width and form by context: mean ± deviation",
                                           title, precision),
                      .down = {"width", "attention"},
                      .across = "context",
                      .value = value,
                      .where = {{"precision", precision}, {"is_plain", "yes"}}},
                     "flash-times"});
    }
  }
}

// The tables to make for each problem, of the subject's ops and precision unless they vary these.
std::vector<Wanted> wanted_tables(const Where& subject) {
  std::vector<Wanted> out;
  const std::string ops = subject[0].second, precision = subject[1].second;
  for (const char* mode : {"forward", "forward-backward", "step"}) {
    out.push_back({"1.1.3 b",
                   {"cells", "scaling"},
                   {.title = fmt::format("{}, {}, {} ops: mean ± deviation, by context", mode,
                                         precision, ops),
                    .down = {"size"},
                    .across = "context",
                    .value = "samples_ms",
                    .where = plus(subject, "mode", mode)}});
  }
  for (const char* mode : {"forward", "forward-backward"}) {
    out.push_back(
        {"1.1.5 c",
         {"steps"},
         {.title = fmt::format("{}, {} ops: mean ± deviation", mode, ops),
          .down = {"size"},
          .across = "precision",
          .value = "samples_ms",
          .where = {{"ops", ops}, {"mode", mode}}},
         std::string_view(mode) == "forward" ? "forward-precision" : "precision-by-size"});
  }
  for (const char* dtype : {"fp32", "bf16"}) {
    const bool is_full = dtype[0] == 'f';
    out.push_back({is_full ? "1.1.6 b" : "1.1.6 c",
                   {"memory_grid"},
                   {.title = fmt::format("Peak in {}, primitive ops, predicted", dtype),
                    .down = {"size", "mode"},
                    .across = "context",
                    .value = "predicted_peak_bytes",
                    .where = {{"precision", dtype}, {"ops", "primitive"}}},
                   is_full ? "peaks" : ""});
  }
  add_attention(out);
  for (const char* part : {"forward", "backward"}) {
    out.push_back({"1.2.2 a",
                   {"attention_ways"},
                   {.title = fmt::format("attention, {}: mean ± deviation, by context", part),
                    .down = {"width", "ops", "executor"},
                    .across = "context",
                    .value = fmt::format("{}_samples_ms", part)}});
  }
  out.push_back({"1.1.4 d",
                 {"passes"},
                 {.title = fmt::format("matrix products' share of the kernels' time, {} ops", ops),
                  .down = {"size", "mode"},
                  .across = "context",
                  .value = "products_percent",
                  .where = plus(subject, "pass", "all")}});
  out.push_back({"1.2.2 b",
                 {"ways"},
                 {.title = fmt::format("{}: mean ± deviation", precision),
                  .down = {"size", "mode"},
                  .across = "way",
                  .value = "samples_ms",
                  .where = {{"precision", precision}}},
                 "compiled"});
  return out;
}

// The table "ways" with ops and executor in one key, in which its rows differ: plain ops, fused
// ops, compiled.
Table with_ways(const Table& ways) {
  Table out = ways;
  const auto ops = ways.index_of("ops"), executor = ways.index_of("executor");
  if (!ops || !executor) return out;
  for (const char* name : {"ops", "executor", "compile_passes"}) {
    if (const auto at = out.index_of(name)) out.columns[*at].role = ColumnRole::kShown;
  }
  out.columns.push_back(as_key(text_column("way")));
  for (std::size_t i = 0; i < out.rows.size(); ++i) {
    const Json &op = ways.rows[i][*ops], &by = ways.rows[i][*executor];
    const bool is_known = op.is_string() && by.is_string();
    out.rows[i].push_back(!is_known                       ? Json()
                          : by.as_string() == "compiled"  ? Json("compiled")
                          : op.as_string() == "primitive" ? Json("plain ops")
                                                          : Json("fused ops"));
  }
  return out;
}

// The table "attention" with a column that tells the usual forms from those that keep more tensors.
Table with_forms(const Table& attention) {
  Table out = attention;
  const auto saved = attention.index_of("saved");
  if (!saved) return out;
  out.columns.push_back(text_column("is_plain"));
  for (std::vector<Json>& row : out.rows) {
    const bool is_plain = row[*saved] == Json("weights") || row[*saved] == Json("lse");
    row.emplace_back(is_plain ? "yes" : "no");
  }
  return out;
}

// The sizes of models, the smallest first.
std::vector<std::string> sizes_in_order(const StudyReport& report) {
  std::map<std::string, std::int64_t> all;
  for (const char* name : {"cells", "sizes"}) {
    const Table* const table = table_named(report.tables, name);
    if (table == nullptr) continue;
    const auto size = table->index_of("size"), count = table->index_of("parameters");
    if (!size || !count) continue;
    for (const auto& row : table->rows) {
      const bool is_known = row[*size].is_string() && row[*count].is_int();
      if (is_known) all.emplace(row[*size].as_string(), row[*count].as_int());
    }
  }
  std::vector<std::string> out;
  for (const auto& [size, count] : all) out.push_back(size);
  std::ranges::stable_sort(out, {}, [&](const std::string& size) { return all.at(size); });
  return out;
}

// The wanted table from those of the study; without rows if the study has none for it, if it has a
// single cell, or, with a warning, if nothing tells its rows apart.
Table pivot_of(const Wanted& wanted, const StudyReport& report) {
  std::vector<Table> copies;
  for (std::string_view name : wanted.tables) {
    const Table* const found = table_named(report.tables, name);
    if (found == nullptr) continue;
    copies.push_back(name == "ways"        ? with_ways(*found)
                     : name == "attention" ? with_forms(*found)
                                           : *found);
  }
  std::vector<const Table*> tables;
  for (const Table& table : copies) tables.push_back(&table);
  try {
    pages::Pivot pivot = wanted.pivot;
    pivot.order = sizes_in_order(report);
    Table out = pages::pivoted(pivot, tables);
    if (out.rows.size() < 2 && out.columns.size() <= pivot.down.size() + 1) out.rows.clear();
    return out;
  } catch (const Error& error) {  // rows that nothing tells apart
    log_warn("the table \"{}\" is left out: {}", wanted.pivot.title, error.what());
    return {};
  }
}

}  // namespace

std::string_view name_of_problem(std::string_view number) {
  const auto found =
      std::ranges::find(kNames, number, &std::pair<std::string_view, std::string_view>::first);
  return found == std::end(kNames) ? std::string_view() : found->second;
}

std::string runs_of_answer(const Answer& answer, std::span<const Table> tables) {
  std::map<std::string, std::vector<Json>> values;
  const auto add = [&](const std::string& key, const Json& cell) {
    std::vector<Json>& all = values[key];
    if (std::ranges::find(all, cell) == all.end()) all.push_back(cell);
  };
  const std::vector<RowRef> of_text = rows_in_text(answer),
                            of_lines = rows_in_lines(answer, tables);
  const auto is_key = [](const Column& column, const Json& cell) {
    return column.role == ColumnRole::kKey && !cell.is_null();
  };
  for_each_cell(of_text, tables, [&](const RowRef&, const Column& column, const Json& cell) {
    if (is_key(column, cell)) add(column.name, cell);
  });
  // Lines of the answer's own table add values to the text's keys, except sizes and vocabularies.
  for_each_cell(of_lines, tables, [&](const RowRef&, const Column& column, const Json& cell) {
    const bool is_of_model = column.name == "size" || column.name == "vocab";
    if (is_key(column, cell) && !is_of_model && values.contains(column.name))
      add(column.name, cell);
  });
  // Tables leave out a key that none of their rows vary; the parameters of a row have all.
  std::vector<Json> batches;
  for_each_cell(of_text, tables, [&](const RowRef&, const Column& column, const Json& cell) {
    if (column.name != "cell" || !cell.is_object() || values.contains("batch")) return;
    const Json* batch = cell.find("batch");
    const bool is_new =
        batch != nullptr && batch->is_int() && std::ranges::find(batches, *batch) == batches.end();
    if (is_new) batches.push_back(*batch);
  });
  if (!batches.empty()) values["batch"] = batches;
  std::vector<std::string> out;
  for (const KeyWords& key : kKeys) {
    const auto found = values.find(key.column);
    // Only attention by itself, which has a width, names its form of attention.
    const bool is_told = std::string_view(key.column) != "attention" || values.contains("width");
    if (found == values.end() || !is_told) continue;
    if (std::ranges::all_of(found->second, &Json::is_int)) {
      std::ranges::sort(found->second, {}, &Json::as_int);
    }
    std::vector<std::string> words;
    for (const Json& cell : found->second) {
      words.push_back(cell.is_int() ? grouped(cell.as_int()) : pages::words_of(cell));
    }
    out.push_back(fmt::format(fmt::runtime(key.words), fmt::format("{}", fmt::join(words, ", "))));
  }
  return fmt::format("{}", fmt::join(out, " · "));
}

std::string samples_of_answer(const Answer& answer, std::span<const Table> tables) {
  std::size_t least = 0, most = 0;
  const std::vector<RowRef> rows = rows_in_text(answer);
  for_each_cell(rows, tables, [&](const RowRef& ref, const Column& column, const Json& cell) {
    const bool is_samples = column.name.ends_with("samples_ms") && cell.is_array() &&
                            (column.name == "samples_ms" ||
                             std::ranges::find(ref.columns, column.name) != ref.columns.end());
    const bool is_start = ref.table == "warmup" && column.name == "steps" && cell.is_int();
    if (!is_start && (!is_samples || cell.items().empty())) return;
    const std::size_t count =
        is_start ? static_cast<std::size_t>(cell.as_int()) : cell.items().size();
    least = least == 0 ? count : std::min(least, count);
    most = std::max(most, count);
  });
  if (most == 0) return {};
  return least == most ? fmt::format("n = {} of each time", most)
                       : fmt::format("n = {} to {} of each time", least, most);
}

std::vector<ProblemTable> tables_of_problem(std::string_view number, const StudyReport& report) {
  Where subject{{"ops", "fused"}, {"precision", "fp32"}};
  const Table* const chosen = table_named(report.tables, "subject");
  for (auto& [key, value] : subject) {
    const auto at = chosen == nullptr ? std::nullopt : chosen->index_of(key);
    const bool is_said = at && !chosen->rows.empty() && chosen->rows[0][*at].is_string();
    if (is_said) value = chosen->rows[0][*at].as_string();
  }
  std::vector<ProblemTable> out;
  for (const Wanted& wanted : wanted_tables(subject)) {
    if (wanted.number != number) continue;
    Table table = pivot_of(wanted, report);
    if (!table.rows.empty()) out.push_back({std::move(table), wanted.replaces});
  }
  // Buffer by buffer, the first cell that does not fit.
  const Table* const account = table_named(report.tables, "attention_account");
  if (number == "1.2.1 a" && account != nullptr) out.push_back({*account, {}});
  return out;
}

}  // namespace tracestep
