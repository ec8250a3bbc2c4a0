#include "lab/compare/rows.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/error.h"
#include "base/suggest.h"
#include "spec/fields.h"

namespace tracestep {
namespace {

// True if both are the same in words, as comma-separated values do not tell texts from numbers.
bool is_same(const Json& a, const Json& b) {
  return words(a) == words(b);
}

bool is_in(const std::vector<std::string>& names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

const Json* key_of(const ResultRow& row, const std::string& key) {
  const Json* value = row.parameter(key);
  const RunField* field = find_field(key);
  return value != nullptr || field == nullptr ? value : default_of(*field);
}

std::vector<std::string> keys_of(std::span<const Column> columns) {
  std::vector<std::string> out;
  for (const Column& column : columns) out.push_back(column.name);
  const bool is_of_runs = std::ranges::any_of(out, find_field);
  for (const RunField& field : run_fields()) {
    if (is_of_runs && tells_apart(field) && !is_in(out, field.name)) out.push_back(field.name);
  }
  return out;
}

bool differ_in(std::span<const ResultRow> a, std::span<const ResultRow> b, const std::string& key) {
  if (a.empty()) return false;
  return std::ranges::any_of(b, [&](const ResultRow& row) {
    const Json *first = key_of(a.front(), key), *value = key_of(row, key);
    return (first == nullptr) != (value == nullptr) ||
           (first != nullptr && !is_same(*first, *value));
  });
}

bool varies(std::span<const ResultRow> rows, const std::string& key) {
  return differ_in(rows, rows, key);
}

}  // namespace

TablePair::TablePair(const ResultTable& left, const ResultTable& right,
                     const std::vector<std::string>& ignored, bool is_of_two_things)
    : a(left), b(right), keys_(keys_of(columns(ColumnRole::kKey))) {
  for (const std::string& key : keys_) {
    const RunField* field = find_field(key);
    const bool is_speed = field != nullptr && field->role == FieldRole::kSpeed;
    const bool is_varied = varies(a.rows, key) || varies(b.rows, key);
    const bool is_apart = !is_varied && differ_in(a.rows, b.rows, key);
    if (is_apart) apart_.push_back(key);
    const bool differs = is_varied || (!is_speed && is_apart);
    if (field != nullptr && differs) varying_.insert(key);
    const bool may_differ = is_in(ignored, key) || (is_speed && !varying_.contains(key));
    if (is_of_parts() || !may_differ) matched_.push_back(key);
  }
  if (is_of_two_things && !is_of_parts() && !has_match()) {
    std::erase_if(matched_, [&](const std::string& key) { return is_in(apart_, key); });
  }
}

bool TablePair::has_match() const {
  std::set<std::string> of_b;
  for (const ResultRow& row : b.rows) of_b.insert(identity(row));
  return std::ranges::any_of(a.rows,
                             [&](const ResultRow& row) { return of_b.contains(identity(row)); });
}

std::string TablePair::difference() const {
  std::string out;
  const bool has_size = is_in(apart_, "size");
  for (const std::string& key : apart_) {
    const RunField* field = find_field(key);
    if (has_size && field != nullptr && is_own_size(*field)) continue;  // the name says it
    const Json *of_a = key_of(a.rows.front(), key), *of_b = key_of(b.rows.front(), key);
    const auto said = [](const Json* value) { return value == nullptr ? "-" : words(*value); };
    out += fmt::format("{}{} {} → {}", out.empty() ? "" : ", ", key, said(of_a), said(of_b));
  }
  return out;
}

std::vector<Column> TablePair::columns(ColumnRole role) const {
  std::vector<Column> out;
  for (const ResultTable* table : {&a, &b}) {
    for (const Column& column : table->columns) {
      const bool is_known = std::ranges::find(out, column.name, &Column::name) != out.end();
      if (column.role == role && !is_known) out.push_back(column);
    }
  }
  return out;
}

std::string TablePair::identity(const ResultRow& row) const {
  std::string out;
  for (const std::string& key : matched_) {
    const Json* value = key_of(row, key);
    out += fmt::format("{}={};", key, value == nullptr ? "" : Json(words(*value)).dump());
  }
  return out;
}

std::map<std::string, const ResultRow*> TablePair::by_identity(const ResultTable& table) const {
  std::map<std::string, const ResultRow*> out;
  for (const ResultRow& row : table.rows) {
    const auto [found, is_new] = out.emplace(identity(row), &row);
    if (is_new) continue;
    throw Error(ErrorCode::kUsage, table.name,
                fmt::format("two rows are the same but for what is ignored: {} and {}",
                            label(*found->second, *found->second), label(row, row)),
                "ignore fewer columns, or give files in which the others tell all rows apart");
  }
  return out;
}

// True if a label leaves out a key that both rows have with this value.
bool TablePair::goes_without_saying(const std::string& key, const Json& value,
                                    const ResultRow& row) const {
  const RunField* field = find_field(key);
  if (field == nullptr) return false;
  const Json *usual = default_of(*field), *size = row.parameter("size");
  if (usual != nullptr && is_same(value, *usual)) return true;
  return field->show != FieldShow::kPeople &&
         (!varying_.contains(key) || is_usual(*field, value, size == nullptr ? Json() : *size));
}

std::string TablePair::label(const ResultRow& row_a, const ResultRow& row_b) const {
  std::string out;
  for (const std::string& key : keys_) {
    const Json *left = key_of(row_a, key), *right = key_of(row_b, key);
    if (left == nullptr || right == nullptr) continue;
    const bool same = is_same(*left, *right);
    if (same && goes_without_saying(key, *left, row_a)) continue;
    std::string text = same ? words(*left) : fmt::format("{} → {}", words(*left), words(*right));
    const RunField* field = find_field(key);
    const bool is_unusual = same && field != nullptr && field->show != FieldShow::kPeople;
    if (is_unusual || left->is_number() || left->is_bool()) text = fmt::format("{} {}", key, text);
    out += (out.empty() ? "" : " ") + text;
  }
  return out.empty() ? "row" : out;
}

std::string words(const Json& value) {
  return value.is_string() ? value.as_string() : value.dump();
}

void check_ignored(std::span<const TablePair> pairs, const std::vector<std::string>& ignored) {
  std::vector<std::string> keys;
  for (const TablePair& pair : pairs) {
    for (const std::string& key : pair.keys()) {
      if (!is_in(keys, key)) keys.push_back(key);
    }
  }
  for (const std::string& name : ignored) check_choice("ignore"_field, name, keys);
}

}  // namespace tracestep
