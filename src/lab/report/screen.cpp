// Fits a table to a screen: a value that is the same in every row is shown once, in the title.
#include <algorithm>

#include <fmt/format.h>

#include "lab/report/writers.h"

namespace tracestep {
namespace {

enum class Place { kColumn, kTitle, kNowhere };

Place place_of(const Table& table, std::size_t at) {
  const Column& column = table.columns[at];
  const auto& rows = table.rows;
  if (!is_shown(table, at)) return Place::kNowhere;
  const bool is_empty = std::ranges::all_of(
      rows, [&](const auto& row) { return row[at].is_null() || row[at] == Json(""); });
  if (is_empty) return Place::kNowhere;
  const bool is_one =
      std::ranges::all_of(rows, [&](const auto& row) { return row[at] == rows.front()[at]; });
  const bool can_move =
      rows.size() > 1 || column.role == ColumnRole::kKey || rows.front()[at] == Json("ok");
  if (!is_one || column.is_result || !can_move) return Place::kColumn;
  // A run that went well needs no words.
  return rows.front()[at] == Json("ok") ? Place::kNowhere : Place::kTitle;
}

}  // namespace

bool is_about(const std::string& note, const Column& column) {
  return note.starts_with((column.title.empty() ? column.name : column.title) + ": ");
}

Table on_screen(const Table& table) {
  if (table.rows.empty()) return table;
  Table out{.name = table.name, .title = table.title, .rows = {}, .notes = table.notes};
  out.rows.resize(table.rows.size());
  std::string same;
  for (std::size_t c = 0; c < table.columns.size(); ++c) {
    const Place place = place_of(table, c);
    if (place == Place::kNowhere) {
      std::erase_if(out.notes, [&](const auto& note) { return is_about(note, table.columns[c]); });
      continue;
    }
    if (place == Place::kColumn) {
      out.columns.push_back(table.columns[c]);
      for (std::size_t r = 0; r < table.rows.size(); ++r) out.rows[r].push_back(table.rows[r][c]);
      continue;
    }
    const DisplayTable one =
        display({.columns = {table.columns[c]}, .rows = {{table.rows.front()[c]}}});
    // A column that is shown only where rows differ needs no words here.
    if (one.headers.empty()) continue;
    same += fmt::format("{}{} {}", same.empty() ? "" : ", ", one.headers[0], one.rows[0][0]);
  }
  if (out.columns.empty()) return table;
  if (!same.empty()) out.title += (out.title.empty() ? "" : ": ") + same;
  return out;
}

}  // namespace tracestep
