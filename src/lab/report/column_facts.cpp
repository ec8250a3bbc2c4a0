#include "lab/report/column_facts.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "base/error.h"

namespace tracestep {
namespace {

template <class T, std::size_t n>
using Names = std::array<std::pair<T, std::string_view>, n>;

constexpr Names<Timing, 3> kTimings{
    {{Timing::kNone, ""}, {Timing::kSampled, "sampled"}, {Timing::kSingle, "single"}}};

template <class T, std::size_t n>
std::string name_in(const Names<T, n>& names, T value) {
  for (const auto& [known, name] : names) {
    if (known == value) return std::string(name);
  }
  return {};
}

template <class T, std::size_t n>
T value_in(const Names<T, n>& names, std::string_view name) {
  for (const auto& [value, known] : names) {
    if (known == name) return value;
  }
  return names.front().first;
}

std::string text_in(const Json& facts, std::string_view name) {
  const Json* text = facts.is_object() ? facts.find(name) : nullptr;
  return text != nullptr && text->is_string() ? text->as_string() : std::string();
}

}  // namespace

ColumnKind kind_of(std::span<const Json> values, bool are_bytes) {
  const auto all = [&](auto is) {
    return std::ranges::all_of(values, [&](const Json& v) { return v.is_null() || is(v); });
  };
  if (all([](const Json& v) { return v.is_int(); })) {
    return are_bytes ? ColumnKind::kBytes : ColumnKind::kInt;
  }
  if (all([](const Json& v) { return v.is_number(); })) return ColumnKind::kReal;
  if (all([](const Json& v) { return v.is_bool(); })) return ColumnKind::kBool;
  if (all([](const Json& v) { return v.is_string(); })) return ColumnKind::kText;
  const bool are_lists = all([](const Json& v) {
    return v.is_array() && std::ranges::all_of(v.items(), &Json::is_number);
  });
  return are_lists ? ColumnKind::kReals : ColumnKind::kStructured;
}

Json facts_of(const Column& column) {
  Json out = Json::object();
  const auto say = [&](const char* name, const std::string& text) {
    if (!text.empty()) out[name] = text;
  };
  say("kind", std::string(name_of(column.kind)));
  say("unit", column.unit.empty() && column.kind == ColumnKind::kBytes ? "bytes" : column.unit);
  say("title", column.title);
  say("description", column.description);
  if (column.role != ColumnRole::kShown) say("role", std::string(name_of(column.role)));
  say("part_of", column.whole);
  if (column.digits >= 0) out["digits"] = column.digits;
  say("timing", name_in(kTimings, column.timing));
  if (column.is_result) out["asked_for"] = true;
  say("shown", column.data_only ? "no" : column.if_varies ? "if it varies" : "");
  for (const auto& [text, shown] : column.words) out["words"][text] = shown;
  return out;
}

Column column_of(const std::string& name, const Json& facts) {
  Column out{.name = name,
             .title = text_in(facts, "title"),
             .unit = text_in(facts, "unit"),
             .kind = named<ColumnKind>(text_in(facts, "kind")).value_or(ColumnKind::kText),
             .description = text_in(facts, "description"),
             .timing = value_in(kTimings, text_in(facts, "timing")),
             .role = named<ColumnRole>(text_in(facts, "role")).value_or(ColumnRole::kShown),
             .whole = text_in(facts, "part_of")};
  if (out.role == ColumnRole::kSamples && !name.ends_with("samples_ms")) {
    out.role = ColumnRole::kShown;
  }
  if (out.kind == ColumnKind::kBytes) out.unit.clear();
  out.data_only = text_in(facts, "shown") == "no";
  out.if_varies = text_in(facts, "shown") == "if it varies";
  const Json* digits = facts.is_object() ? facts.find("digits") : nullptr;
  if (digits != nullptr && digits->is_int()) out.digits = static_cast<int>(digits->as_int());
  const Json* words = facts.is_object() ? facts.find("words") : nullptr;
  if (words == nullptr || !words->is_object()) return out;
  for (const auto& [text, shown] : words->members()) {
    if (shown.is_string()) out.words.emplace_back(text, shown.as_string());
  }
  return out;
}

void add_rows(const Json& json, const std::string& where, Table& out) {
  const Json* rows = json.is_object() ? json.find("rows") : nullptr;
  if (rows == nullptr || !rows->is_array()) {
    fail_input(where, "{} has no rows", out.name);
  }
  for (const Json& row : rows->items()) {
    std::vector<Json> cells;
    for (const Column& column : out.columns) {
      const Json* cell = row.is_object() ? row.find(column.name) : nullptr;
      if (cell != nullptr && !fits(*cell, column.kind)) {
        fail_input(where, "{} of {} is {}, where its kind is {}", column.name, out.name,
                   cell->dump().substr(0, 40), name_of(column.kind));
      }
      cells.push_back(cell == nullptr ? Json() : *cell);
    }
    out.add_row(std::move(cells));
  }
  const Json* notes = json.find("notes");
  if (notes == nullptr || !notes->is_array()) return;
  for (const Json& note : notes->items()) {
    if (note.is_string()) out.notes.push_back(note.as_string());
  }
}

Table table_of(const std::string& name, const Json& json, const std::string& where) {
  Table out{.name = name, .title = text_in(json, "title")};
  const Json *rows = json.is_object() ? json.find("rows") : nullptr,
             *columns = json.is_object() ? json.find("columns") : nullptr;
  const bool has_rows = rows != nullptr && rows->is_array() && !rows->items().empty();
  if (has_rows && rows->items()[0].is_object()) {
    for (const auto& [column, value] : rows->items()[0].members()) {
      const Json* facts =
          columns == nullptr || !columns->is_object() ? nullptr : columns->find(column);
      out.columns.push_back(facts == nullptr ? Column{.name = column} : column_of(column, *facts));
      if (facts != nullptr && facts->find("kind") != nullptr) continue;
      std::vector<Json> values;
      for (const Json& row : rows->items()) {
        const Json* cell = row.is_object() ? row.find(column) : nullptr;
        if (cell != nullptr) values.push_back(*cell);
      }
      Column& last = out.columns.back();
      last.kind = kind_of(values, last.unit == "bytes");
      if (last.kind == ColumnKind::kBytes) last.unit.clear();
    }
  } else if (columns != nullptr && columns->is_object()) {
    for (const auto& [column, facts] : columns->members()) {
      out.columns.push_back(column_of(column, facts));
    }
  }
  if (has_rows) {
    for (const Json& row : rows->items()) {
      if (row.is_object() &&
          std::ranges::equal(row.members(), out.columns, {}, &std::pair<std::string, Json>::first,
                             &Column::name)) {
        continue;
      }
      fail_input(where, "the rows of {} differ in their columns", name);
    }
  }
  add_rows(json, where, out);
  return out;
}

std::vector<Table> tables_of(const Json& document, const std::string& where,
                             std::string_view primary) {
  std::vector<Table> out;
  const Json* tables = document.is_object() ? document.find("tables") : nullptr;
  if (tables != nullptr && tables->is_object()) {
    for (const auto& [name, table] : tables->members()) {
      out.push_back(table_of(name, table, where));
    }
    return out;
  }
  const std::string name = text_in(document, "table");
  out.push_back(table_of(name.empty() ? std::string(primary) : name, document, where));
  return out;
}

}  // namespace tracestep
