#include "lab/study/subject.h"

#include <algorithm>
#include <tuple>

namespace tracestep {
namespace {

const Json* cell_in(const Table& table, const std::vector<Json>& row, std::string_view column) {
  const auto at = table.index_of(column);
  return at ? &row[*at] : nullptr;
}

bool says(const Table& table, const std::vector<Json>& row, std::string_view column,
          std::string_view text) {
  const Json* cell = cell_in(table, row, column);
  return cell == nullptr || (cell->is_string() && cell->as_string() == text);
}

// True if the row is of a plain run in this precision: eager, on one rank, with every composite as
// a kernel of its own and attention by parts.
bool is_plain(const Table& table, const std::vector<Json>& row, std::string_view precision) {
  return says(table, row, "ops", "fused") && says(table, row, "executor", "eager") &&
         says(table, row, "precision", precision) && says(table, row, "attention", "naive") &&
         says(table, row, "parallel", "none") && says(table, row, "status", "ok");
}

// Returns how many of the six rows that most questions need exist for the model of a row.
int known_of(std::span<const Table> tables, const Table& of, const std::vector<Json>& model) {
  int out = 0;
  for (const auto& [name, mode, precision] : {std::tuple{"cells", "forward", "fp32"},
                                              {"cells", "forward-backward", "fp32"},
                                              {"cells", "step", "fp32"},
                                              {"steps", "forward-backward", "bf16"},
                                              {"passes", "step", "fp32"},
                                              {"memory", "step", "fp32"}}) {
    const auto table = std::ranges::find(tables, std::string_view(name), &Table::name);
    if (table == tables.end()) continue;
    out += std::ranges::any_of(table->rows, [&](const std::vector<Json>& row) {
      const auto is_same = [&](const char* key) {
        const Json *a = cell_in(of, model, key), *b = cell_in(*table, row, key);
        return a == nullptr || b == nullptr || *a == *b;
      };
      const Json* const peak = cell_in(*table, row, "measured_peak_bytes");
      const bool is_predicted = peak != nullptr && peak->is_null();
      return !is_predicted && is_plain(*table, row, precision) && says(*table, row, "mode", mode) &&
             is_same("size") && is_same("vocab") && is_same("context");
    });
  }
  return out;
}

double number_in(const Table& table, const std::vector<Json>& row, std::string_view column) {
  const Json* cell = cell_in(table, row, column);
  return cell != nullptr && cell->is_number() ? cell->as_double() : 0.0;
}

}  // namespace

Table subject_table(std::span<const Table> tables) {
  Table out{.name = "subject", .title = "The run that most answers are about"};
  for (const auto& [name, work] : {std::pair{"cells", "flops"}, {"memory", "parameters"}}) {
    const auto table = std::ranges::find(tables, std::string_view(name), &Table::name);
    if (table == tables.end()) continue;
    const std::vector<Json>* best = nullptr;
    std::tuple<int, double> most;
    for (const std::vector<Json>& row : table->rows) {
      if (!is_plain(*table, row, "fp32") || !says(*table, row, "mode", "step")) continue;
      const std::tuple here(known_of(tables, *table, row), number_in(*table, row, work));
      if (best != nullptr && here <= most) continue;
      best = &row;
      most = here;
    }
    if (best == nullptr) continue;
    std::vector<Json> row;
    for (std::size_t i = 0; i < table->columns.size(); ++i) {
      const Column& column = table->columns[i];
      const bool is_name = column.kind == ColumnKind::kStructured || column.name == "label";
      const bool is_said = !(*best)[i].is_null() && column.name != "mode";
      if (column.role != ColumnRole::kKey || is_name || !is_said) continue;
      out.columns.push_back(column);
      row.emplace_back((*best)[i]);
    }
    out.add_row(std::move(row));
    break;
  }
  return out;
}

}  // namespace tracestep
