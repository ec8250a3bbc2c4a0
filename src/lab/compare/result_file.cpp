#include "lab/compare/result_file.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/error.h"
#include "base/input_file.h"
#include "base/utf8.h"
#include "lab/compare/declared.h"
#include "lab/report/column_facts.h"
#include "spec/fields.h"

namespace tracestep {
namespace {

constexpr std::size_t kMaxPartRows = 100 * kMaxResultRows;

std::vector<Column> with_roles(std::vector<Column> columns) {
  std::erase_if(columns, [](const Column& c) {
    return c.role == ColumnRole::kShown || c.role == ColumnRole::kFollows;
  });
  return columns;
}

// The member with this name if it is there and an object, else nullptr.
const Json* object_in(const Json& json, std::string_view name) {
  const Json* found = json.is_object() ? json.find(name) : nullptr;
  return found != nullptr && found->is_object() ? found : nullptr;
}

// Returns how many columns of `declared` the table has; 0 if it is another table: it lacks samples
// and an untimed column of `declared`. Fields of runs do not count, as older results lack them.
std::int64_t columns_in(const Json& table, const Table& declared) {
  const Json *columns = object_in(table, "columns"), *rows = table.find("rows");
  std::int64_t out = 0;
  bool is_whole = true, has_samples = false;
  for (const Column& column : with_roles(declared.columns)) {
    const bool is_here = (columns != nullptr && columns->find(column.name) != nullptr) ||
                         (rows->size() > 0 && rows->items().front().find(column.name) != nullptr);
    if (find_field(column.name) != nullptr) continue;
    is_whole = is_whole && (is_here || timing_of(column) != Timing::kNone);
    has_samples = has_samples || (is_here && column.role == ColumnRole::kSamples);
    out += is_here ? 1 : 0;
  }
  return is_whole || has_samples ? out : 0;
}

// Returns the declared table of this name, up to an "@"; without a name the most similar one.
const Table* declared_as(const std::string& name, const Json& table) {
  const Table* best = nullptr;
  std::int64_t most = 0;
  for (const Table& declared : declared_tables()) {
    if (!name.empty() && declared.name != name.substr(0, name.find('@'))) continue;
    const std::int64_t columns = columns_in(table, declared);
    if (columns > most) best = &declared;
    most = std::max(most, columns);
  }
  return best;
}

[[noreturn]] void fail_foreign(const std::string& name, const std::string& why) {
  throw Error(ErrorCode::kInput, name, fmt::format("it is no result of tracestep: {}", why),
              "give what one of its commands has written, in the format json");
}

// True if rows can be compared: something identifies them, and they have figures besides.
bool can_be_compared(const std::vector<Column>& columns) {
  const auto keys = std::ranges::count(columns, ColumnRole::kKey, &Column::role);
  return keys > 0 && keys < std::ssize(columns);
}

}  // namespace

bool ResultTable::is_of_parts() const {
  return std::ranges::find(columns, ColumnRole::kPart, &Column::role) != columns.end();
}

std::vector<ResultRow> ResultFile::cells() const {
  std::vector<ResultRow> out;
  for (const ResultTable& table : tables) {
    if (!table.is_of_parts()) out.insert(out.end(), table.rows.begin(), table.rows.end());
  }
  return out;
}

std::string text_at(const Json& object, std::string_view key) {
  const Json* text = object.is_object() ? object.find(key) : nullptr;
  return text != nullptr && text->is_string() ? text->as_string() : std::string();
}

void add_table(const std::string& name, const Json& table,
               const std::shared_ptr<const Json>& environment, ResultFile& out) {
  const Json* rows = table.is_object() ? table.find("rows") : nullptr;
  if (rows == nullptr || !rows->is_array()) return;
  ResultTable added{name, {}, {}};
  if (const Json* columns = object_in(table, "columns")) {
    for (const auto& [column, facts] : columns->members()) {
      added.columns.push_back(column_of(column, facts));
    }
  }
  added.columns = with_roles(std::move(added.columns));
  const bool is_known = !added.columns.empty() && !name.empty();
  if (const Table* declared = is_known ? nullptr : declared_as(name, table)) {
    if (added.columns.empty()) added.columns = with_roles(declared->columns);
    if (name.empty()) added.name = declared->name;
  }
  if (!can_be_compared(added.columns)) return;
  const std::size_t limit = added.is_of_parts() ? kMaxPartRows : kMaxResultRows;
  if (rows->size() > limit) {
    fail_input(out.name, "{} rows; at most {} are read", rows->size(), limit);
  }
  for (const Json& row : rows->items()) added.rows.emplace_back(row, environment);
  out.tables.push_back(std::move(added));
}

Json result_document(std::string_view text, const std::string& name) {
  const std::size_t begin = std::min(text.find_first_not_of(" \t\r\n"), text.size());
  if (text.substr(begin, 1) != "{") {
    constexpr std::size_t kShown = 24;
    const std::string_view line = text.substr(begin, text.find_first_of("\r\n", begin) - begin);
    fail_foreign(name, line.empty()
                           ? "it is empty"
                           : fmt::format("it begins with \"{}\", and one in JSON with a {{",
                                         printable(line.substr(0, kShown))));
  }
  Json out = Json::parse(text, name);
  if (text_at(out, "schema").empty()) {
    fail_foreign(name, out.find("traceEvents") != nullptr
                           ? "it is a trace, which the command read takes"
                           : "there is no \"schema\"");
  }
  return out;
}

void fail_without_tables(const ResultFile& file) {
  if (file.schema.empty()) fail_foreign(file.name, "no table of its commands has such columns");
  const std::string schema = fmt::format(" ({})", file.schema);
  throw Error(ErrorCode::kInput, file.name,
              fmt::format("it holds nothing that can be compared{}", schema),
              "give a result of bench, attention, memory, profile, precision, compile or study");
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
  const std::string schema = text_at(document, "schema");
  if (schema.empty()) fail_foreign(name, "there is no \"schema\"");
  check_members(document, name);
  ResultFile out{name, schema, document.at("environment"), {}};
  const auto machine = std::make_shared<const Json>(out.environment);
  add_table("", document, machine, out);
  if (!out.tables.empty() && out.tables[0].name.empty()) out.tables[0].name = schema;
  const Json* tables = object_in(document, "tables");
  // "tables" repeats the table that is already added, as its first one.
  for (std::size_t i = out.tables.size(); tables != nullptr && i < tables->size(); ++i) {
    const auto& [table, content] = tables->members()[i];
    add_table(table, content, machine, out);
  }
  if (out.tables.empty()) fail_without_tables(out);
  return out;
}

ResultFile read_result(const std::filesystem::path& path) {
  if (path.extension() == ".csv") return read_result_csv(path);
  const std::string name = path.filename().string();
  return result_of(result_document(read_text_file(path, name, kMaxResultBytes), name), name);
}

}  // namespace tracestep
