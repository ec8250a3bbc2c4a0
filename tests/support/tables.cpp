#include "support/tables.h"

#include <algorithm>
#include <regex>

#include "base/error.h"

namespace tracestep::testing {
namespace {

Json value_of(const std::string& text) {
  static const std::regex json(R"(-?[0-9.]+(e[+-]?[0-9]+)?|true|false|null|[\[\{"].*)"),
      list(R"((.*) × (\d+))");
  std::smatch parts;
  if (!text.starts_with('"') && std::regex_match(text, parts, list)) {
    return Json::Array(std::stoul(parts[2]), value_of(parts[1]));
  }
  return std::regex_match(text, json) ? Json::parse(text, "cell") : Json(text);
}

std::size_t place_of(const Table& table, std::string_view column) {
  const auto at = table.index_of(column);
  TRACESTEP_CHECK(at.has_value(), "{} has no column {}", table.name, column);
  return *at;
}

}  // namespace

const Json& cell(const Table& table, std::size_t row, std::string_view column) {
  TRACESTEP_CHECK(row < table.rows.size(), "{} has no row {}", table.name, row);
  return table.rows[row][place_of(table, column)];
}

const Json& cell(const Table& table, std::string_view by, const Json& key,
                 std::string_view column) {
  const std::size_t at = place_of(table, by);
  const auto found = std::ranges::find_if(table.rows, [&](auto& row) { return row[at] == key; });
  return cell(table, static_cast<std::size_t>(found - table.rows.begin()), column);
}

const Json& cell(const Table& table, const Json& key, std::string_view column) {
  return cell(table, table.columns.front().name, key, column);
}

std::vector<std::pair<std::string, std::optional<Json>>> cells_in(std::string_view text) {
  static const std::regex form(R"( *([^ ;]+) ([^;]*))");
  std::vector<std::pair<std::string, std::optional<Json>>> out;
  const std::string all(text);
  for (std::sregex_iterator at(all.begin(), all.end(), form), end; at != end; ++at) {
    const std::string value = (*at)[2];
    out.emplace_back((*at)[1], value == "-" ? std::nullopt : std::optional(value_of(value)));
  }
  return out;
}

void change_cells(Json& row, std::string_view text) {
  for (auto& [column, value] : cells_in(text)) row[column] = value.value_or(Json());
}

}  // namespace tracestep::testing
