#include "lab/measure/no_times.h"

#include <utility>

namespace tracestep {

std::vector<Json> without_times(std::span<const Column> columns, std::vector<Json> row) {
  for (std::size_t c = 0; c < columns.size(); ++c) {
    if (timing_of(columns[c]) == Timing::kNone) continue;
    row[c] = columns[c].kind == ColumnKind::kReals ? Json::array() : Json();
  }
  return row;
}

void empty_times(Table& table, std::size_t row) {
  table.rows[row] = without_times(table.columns, std::move(table.rows[row]));
}

}  // namespace tracestep
