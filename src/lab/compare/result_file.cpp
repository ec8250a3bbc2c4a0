#include "lab/compare/result_file.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "base/input_file.h"

namespace tracestep {
namespace {

constexpr std::size_t kMaxPartRows = 100 * kMaxResultRows;

}  // namespace

std::vector<ResultRow> ResultFile::cells() const {
  std::vector<ResultRow> out;
  for (const ResultTable& table : tables) {
    if (!table.layout->is_parts) out.insert(out.end(), table.rows.begin(), table.rows.end());
  }
  return out;
}

void add_table(const std::string& name, const Json& rows,
               const std::shared_ptr<const Json>& environment, ResultFile& out) {
  const Json::Array& items = rows.items();
  const TableLayout* layout = layout_of(name, items.empty() ? Json() : items.front());
  if (layout == nullptr) return;
  const std::size_t limit = layout->is_parts ? kMaxPartRows : kMaxResultRows;
  if (items.size() > limit) {
    fail_input(out.name, "{} rows; at most {} are read", items.size(), limit);
  }
  ResultTable table{name.empty() ? std::string(layout->table) : name, layout, {}};
  for (const Json& row : items) table.rows.emplace_back(row, environment);
  out.tables.push_back(std::move(table));
}

void check_members(const Json& document, const std::string& name) {
  const auto refuse = [&](const char* what) {
    fail_input(name, "it is no whole JSON result: there is no {}", what);
  };
  const Json *environment = document.find("environment"), *rows = document.find("rows");
  if (environment == nullptr || !environment->is_object()) refuse("object \"environment\"");
  if (rows == nullptr || !rows->is_array()) refuse("array \"rows\"");
}

ResultFile result_of(const Json& document, const std::string& name) {
  const Json* schema = document.is_object() ? document.find("schema") : nullptr;
  if (schema == nullptr || !schema->is_string()) {
    throw Error(ErrorCode::kInput, name, "it is no JSON result: there is no \"schema\"",
                "results are compared in the format json");
  }
  const std::vector<std::string_view> known = compared_schemas();
  if (std::ranges::find(known, schema->as_string()) == known.end()) {
    throw Error(
        ErrorCode::kInput, name,
        fmt::format("rows of {} have neither samples nor bytes to compare", schema->as_string()),
        fmt::format("one of {}", fmt::join(known, ", ")));
  }
  check_members(document, name);
  ResultFile out{name, schema->as_string(), document.at("environment"), {}};
  const auto machine = std::make_shared<const Json>(out.environment);
  const Json* tables = document.find("tables");
  // "rows" is the first table again.
  const std::string_view primary = primary_table(out.schema);
  add_table(std::string(primary), document.at("rows"), machine, out);
  if (tables == nullptr || !tables->is_object()) return out;
  for (const auto& [table, content] : tables->members()) {
    const Json* rows = content.is_object() ? content.find("rows") : nullptr;
    const bool is_first = rows != nullptr && table == tables->members().front().first;
    if (rows == nullptr || !rows->is_array() || (is_first && !out.tables.empty())) continue;
    add_table(table, *rows, machine, out);
  }
  return out;
}

ResultFile read_result(const std::filesystem::path& path) {
  if (path.extension() == ".csv") return read_result_csv(path);
  const std::string name = path.filename().string();
  return result_of(Json::parse(read_text_file(path, name, kMaxResultBytes), name), name);
}

}  // namespace tracestep
