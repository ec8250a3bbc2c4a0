#include "lab/report/by_column.h"

#include <algorithm>

namespace tracestep {
namespace {

constexpr std::int64_t kExact = std::int64_t{1} << 52;  // a browser's numbers are doubles

bool have_same_members(const Json::Array& rows) {
  return std::ranges::all_of(rows, [&](const Json& row) {
    return row.is_object() && !row.members().empty() &&
           std::ranges::equal(row.members(), rows.front().members(),
                              [](auto& a, auto& b) { return a.first == b.first; });
  });
}

Json cells_of(const Json::Array& rows, std::size_t member) {
  Json out = Json::array(), steps = Json::array();
  bool are_whole = true;
  std::int64_t last = 0;
  for (const Json& row : rows) {
    const Json& cell = row.members()[member].second;
    out.push_back(cell);
    are_whole = are_whole && cell.is_int() && cell.as_int() > -kExact && cell.as_int() < kExact;
    if (!are_whole) continue;
    steps.push_back(cell.as_int() - last);
    last = cell.as_int();
  }
  return are_whole ? Json(Json::Object{{"steps", std::move(steps)}}) : out;
}

Json packed_rows(const Json& rows) {
  const bool has_rows = rows.is_array() && rows.size() > 0;
  if (!has_rows || !have_same_members(rows.items())) return rows;
  Json cells = Json::object();
  const Json::Object& members = rows.items().front().members();
  for (std::size_t i = 0; i < members.size(); ++i) {
    cells[members[i].first] = cells_of(rows.items(), i);
  }
  return Json::Object{{"cells", std::move(cells)}};
}

Json::Array unpacked_cells(const Json& cells) {
  if (cells.is_array()) return cells.items();
  Json::Array out;
  std::uint64_t last = 0;  // wraps around, whatever a damaged page holds
  for (const Json& step : cells.at("steps").items()) {
    last += static_cast<std::uint64_t>(step.as_int());
    out.emplace_back(static_cast<std::int64_t>(last));
  }
  return out;
}

Json unpacked_rows(const Json& packed) {
  if (!packed.is_object()) return packed;
  std::vector<Json::Object> rows;
  for (const auto& [name, cells] : packed.at("cells").members()) {
    Json::Array column = unpacked_cells(cells);
    if (rows.empty()) rows.resize(column.size());
    column.resize(rows.size());
    for (std::size_t i = 0; i < rows.size(); ++i) rows[i].emplace_back(name, std::move(column[i]));
  }
  Json out = Json::array();
  for (Json::Object& row : rows) out.push_back(std::move(row));
  return out;
}

// Returns a copy of the table with its rows replaced by change(rows).
Json with_rows(const Json& table, Json (*change)(const Json& rows)) {
  Json out = Json::object();
  for (const auto& [name, value] : table.members()) {
    out[name] = name == "rows" ? change(value) : value;
  }
  return out;
}

Json with_tables(const Json& result, Json (*change)(const Json& rows)) {
  Json out = Json::object();
  for (const auto& [name, value] : result.members()) {
    out[name] = name == "rows" ? change(value) : name == "tables" ? Json::object() : value;
    if (name != "tables") continue;
    for (const auto& [table, entry] : value.members()) {
      out["tables"][table] = with_rows(entry, change);
    }
  }
  return out;
}

// Returns the rows of the main table among `tables`; nullptr: the result does not name it.
const Json* main_rows(const Json& result) {
  const Json *tables = result.find("tables"), *name = result.find("table");
  if (tables == nullptr || name == nullptr || !name->is_string()) return nullptr;
  const Json* table = tables->find(name->as_string());
  return table == nullptr ? nullptr : table->find("rows");
}

}  // namespace

Json by_column(const Json& result) {
  Json out = with_tables(result, packed_rows);
  const Json *rows = result.find("rows"), *same = main_rows(result);
  if (rows != nullptr && same != nullptr && *rows == *same) out["rows"] = Json();
  return out;
}

Json by_row(const Json& packed) {
  Json out = with_tables(packed, unpacked_rows);
  const Json* rows = out.find("rows");
  if (rows == nullptr || !rows->is_null()) return out;
  if (const Json* same = main_rows(out)) out["rows"] = Json(*same);
  return out;
}

}  // namespace tracestep
