#include "lab/compare/merge.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "lab/compare/result_file.h"
#include "lab/measure/validity.h"

namespace tracestep {
namespace {

// The kind of a column whose values are these.
ColumnKind kind_of(std::span<const Json> values, const std::string& unit) {
  const auto all = [&](auto is) {
    return std::ranges::all_of(values, [&](const Json& v) { return v.is_null() || is(v); });
  };
  if (all([](const Json& v) { return v.is_int(); })) {
    return unit == "bytes" ? ColumnKind::kBytes : ColumnKind::kInt;
  }
  if (all([](const Json& v) { return v.is_number(); })) return ColumnKind::kReal;
  if (all([](const Json& v) { return v.is_bool(); })) return ColumnKind::kBool;
  if (all([](const Json& v) { return v.is_string(); })) return ColumnKind::kText;
  const bool are_lists = all([](const Json& v) {
    return v.is_array() && std::ranges::all_of(v.items(), &Json::is_number);
  });
  return are_lists ? ColumnKind::kReals : ColumnKind::kStructured;
}

std::string text_at(const Json& object, std::string_view key) {
  const Json* text = object.is_object() ? object.find(key) : nullptr;
  return text != nullptr && text->is_string() ? text->as_string() : std::string();
}

// A table as it was written. The kinds of its columns follow from the values, so that empty columns
// count as whole numbers.
Table table_of(std::string name, const Json& json, const std::string& where) {
  const Json* rows = json.is_object() ? json.find("rows") : nullptr;
  if (rows == nullptr || !rows->is_array()) fail_input(where, "{} has no rows", name);
  Table out{.name = std::move(name), .title = text_at(json, "title")};
  for (const Json& row : rows->items()) {
    std::vector<Json> cells;
    for (const auto& [column, value] : row.members()) {
      if (out.rows.empty()) out.columns.push_back({.name = column});
      cells.push_back(value);
    }
    const bool fits = std::ranges::equal(row.members(), out.columns, {},
                                         &std::pair<std::string, Json>::first, &Column::name);
    if (!fits) fail_input(where, "the rows of {} differ in their columns", out.name);
    out.rows.push_back(std::move(cells));
  }
  const Json* columns = json.find("columns");
  for (std::size_t c = 0; c < out.columns.size(); ++c) {
    const Json* facts = columns == nullptr ? nullptr : columns->find(out.columns[c].name);
    std::vector<Json> values;
    for (const auto& row : out.rows) values.push_back(row[c]);
    Column& column = out.columns[c];
    column.unit = facts == nullptr ? "" : text_at(*facts, "unit");
    column.description = facts == nullptr ? "" : text_at(*facts, "description");
    column.kind = kind_of(values, column.unit);
    if (column.kind == ColumnKind::kBytes) column.unit.clear();
  }
  if (const Json* notes = json.find("notes")) {
    for (const Json& note : notes->items()) out.notes.push_back(note.as_string());
  }
  return out;
}

std::vector<Table> tables_of(const PartResult& part, std::string_view primary) {
  std::vector<Table> out;
  if (const Json* tables = part.document.find("tables")) {
    for (const auto& [name, table] : tables->members()) {
      out.push_back(table_of(name, table, part.name));
    }
  } else {
    out.push_back(table_of(std::string(primary), part.document, part.name));
  }
  return out;
}

bool has_verdicts(const Table& table) {
  return std::ranges::any_of(table.columns, is_verdict_column);
}

std::vector<ResultRow> rows_of(const Table& table, const Json& environment) {
  std::vector<ResultRow> out;
  for (const auto& row : table.rows) {
    out.push_back(ResultRow::of(table.columns, row, environment));
  }
  return out;
}

// Without the notes on rows, which are judged again beside the others.
void drop_verdicts(Table& table, const Json& environment) {
  if (!has_verdicts(table)) return;
  const std::vector<std::string> old = validity_notes(rows_of(table, environment));
  std::erase_if(table.notes,
                [&](const std::string& note) { return std::ranges::find(old, note) != old.end(); });
}

// The wider of two kinds: a column may hold numbers in one part and nothing in another.
ColumnKind common_kind(const Table& a, const Table& b, std::size_t column) {
  std::vector<Json> values;
  for (const Table* table : {&a, &b}) {
    for (const auto& row : table->rows) values.push_back(row[column]);
  }
  const bool are_bytes =
      a.columns[column].kind == ColumnKind::kBytes || b.columns[column].kind == ColumnKind::kBytes;
  return kind_of(values, are_bytes ? "bytes" : "");
}

void append(const Table& part, const std::string& where, Table& out) {
  if (part.rows.empty()) return;
  if (out.rows.empty()) {
    out.columns = part.columns;
  } else if (!std::ranges::equal(part.columns, out.columns, {}, &Column::name, &Column::name)) {
    fail_input(where, "{} has other columns than in the parts before it", out.name);
  } else {
    for (std::size_t c = 0; c < out.columns.size(); ++c) {
      out.columns[c].kind = common_kind(out, part, c);
    }
  }
  out.rows.insert(out.rows.end(), part.rows.begin(), part.rows.end());
  for (const std::string& note : part.notes) {
    if (std::ranges::find(out.notes, note) == out.notes.end()) out.notes.push_back(note);
  }
}

// What parts have of one table.
struct Gathered {
  std::string name;
  std::vector<std::size_t> of;  // part, by table
  std::vector<Table> tables;

  bool all_have(std::span<const std::string> columns) const {
    return std::ranges::all_of(tables, [&](const Table& table) {
      return table.rows.empty() || std::ranges::all_of(columns, [&](const std::string& column) {
               return std::ranges::find(table.columns, column, &Column::name) !=
                      table.columns.end();
             });
    });
  }
  bool all_same() const {
    return std::ranges::all_of(
        tables, [&](const Table& table) { return table.rows == tables.front().rows; });
  }
};

std::vector<Gathered> gather(std::span<const PartResult> parts, std::string_view primary) {
  std::vector<Gathered> out;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    for (Table& table : tables_of(parts[i], primary)) {
      drop_verdicts(table, parts[i].document.at("environment"));
      auto found = std::ranges::find(out, table.name, &Gathered::name);
      if (found == out.end()) found = out.insert(out.end(), Gathered{table.name, {}, {}});
      found->of.push_back(i);
      found->tables.push_back(std::move(table));
    }
  }
  return out;
}

// "cpu was A and is B", for what makes rows of two parts incomparable.
std::string other_machine(const Json& first, const Json& other) {
  std::vector<std::string> out;
  const Json missing;
  for (std::string_view item : {"cpu", "gpu", "threads", "commit"}) {
    const Json *a = first.find(item), *b = other.find(item);
    if (a == nullptr) a = &missing;
    if (b == nullptr) b = &missing;
    if (!(*a == *b)) out.push_back(fmt::format("{} {} and {}", item, a->dump(), b->dump()));
  }
  return fmt::format("{}", fmt::join(out, ", "));
}

void check_part(const PartResult& part, const PartResult& first) {
  check_members(part.document, part.name);
  const std::string schema = text_at(part.document, "schema"),
                    expected = text_at(first.document, "schema");
  if (schema.empty()) fail_input(part.name, "it is no JSON result: there is no schema");
  if (schema != expected) fail_input(part.name, "its schema is {}, not {}", schema, expected);
}

}  // namespace

Document merged(std::span<const PartResult> parts, std::span<const std::string> divided) {
  TRACESTEP_CHECK(!parts.empty(), "no parts");
  for (const PartResult& part : parts) check_part(part, parts.front());
  const std::string schema = text_at(parts.front().document, "schema");
  const Json& environment = parts.front().document.at("environment");
  Document out{schema, environment, {}};
  // A result of one table does not name it.
  const std::size_t dot = schema.find('.'), end = schema.find('/');
  const std::string primary = schema.substr(dot + 1, end - dot - 1);
  std::vector<Gathered> all = gather(parts, primary);
  for (Gathered& one : all) {
    const bool is_first = &one == &all.front();
    if (is_first || one.all_have(divided)) {
      Table table{.name = one.name, .title = one.tables.front().title};
      for (std::size_t i = 0; i < one.tables.size(); ++i) {
        append(one.tables[i], parts[one.of[i]].name, table);
      }
      if (has_verdicts(table)) add_verdicts(table, rows_of(table, environment));
      out.tables.push_back(std::move(table));
    } else if (one.all_same()) {
      out.tables.push_back(std::move(one.tables.front()));
    } else {
      for (std::size_t i = 0; i < one.tables.size(); ++i) {
        one.tables[i].name += "@" + parts[one.of[i]].label;
        out.tables.push_back(std::move(one.tables[i]));
      }
    }
  }
  for (const PartResult& part : parts.subspan(1)) {
    const std::string other = other_machine(environment, part.document.at("environment"));
    if (other.empty()) continue;
    out.tables.front().notes.push_back(fmt::format("{} ran elsewhere: {}", part.label, other));
  }
  return out;
}

}  // namespace tracestep
