#include "lab/pages/pivot.h"

#include <algorithm>
#include <map>
#include <optional>

#include <fmt/format.h>

#include "lab/measure/statistics.h"
#include "lab/pages/figures.h"
#include "lab/report/columns.h"
#include "lab/report/writers.h"

namespace tracestep::pages {
namespace {

using Keys = std::vector<std::string>;

// One cell as the writers for people format it.
std::string displayed(const Column& column, const Json& cell) {
  Table alone{.columns = {column}};
  alone.columns[0].data_only = alone.columns[0].if_varies = false;
  alone.add_row({cell});
  const std::string unit = column.kind == ColumnKind::kBytes ? "" : column.unit;
  return display(alone).rows[0][0] + (unit.empty() ? "" : " ") + unit;
}

// What stands in the place of a row; empty: nothing.
std::string value_of(const Table& table, const std::vector<Json>& row, std::string_view column) {
  const Json *value = cell_in(table, row, column), *status = cell_in(table, row, "status");
  if (status != nullptr && words_of(*status) == "oom") return "OOM";
  if (value == nullptr || value->is_null()) return {};
  if (!value->is_array()) return displayed(table.columns[*table.index_of(column)], *value);
  const std::vector<double> samples = numbers_in(*value);
  return samples.empty() ? "" : mean_and_deviation(mean_of(samples), sample_std_of(samples));
}

bool is_number(const std::string& text) {
  return !text.empty() && text.find_first_not_of("0123456789") == text.npos && text.size() < 18;
}

// In the order in which they came; where all of one place are numbers, by their size.
template <class T, class Get>
void sort_numbers(std::vector<T>& all, Get get) {
  if (!std::ranges::all_of(all, [&](const T& each) { return is_number(get(each)); })) return;
  std::ranges::stable_sort(all, {}, [&](const T& each) { return std::stoll(get(each)); });
}

template <class T>
void add_once(const T& value, std::vector<T>& all) {
  if (std::ranges::find(all, value) == all.end()) all.push_back(value);
}

// The texts of these columns; nullopt: the table lacks one.
std::optional<Keys> keys_of(const Table& table, const std::vector<Json>& row, const Keys& columns) {
  Keys out;
  for (const std::string& column : columns) {
    const Json* cell = cell_in(table, row, column);
    if (cell == nullptr) return std::nullopt;
    out.push_back(words_of(*cell));
  }
  return out;
}

}  // namespace

const Json* cell_in(const Table& table, const std::vector<Json>& row, std::string_view column) {
  const std::optional<std::size_t> at = table.index_of(column);
  return at ? &row[*at] : nullptr;
}

std::string words_of(const Json& cell) {
  return cell.is_string() ? cell.as_string() : cell.is_null() ? "" : cell.dump();
}

std::vector<double> numbers_in(const Json& list) {
  std::vector<double> out;
  if (!list.is_array()) return out;
  for (const Json& item : list.items()) {
    if (item.is_number()) out.push_back(item.as_double());
  }
  return out;
}

std::string mean_and_deviation(double mean, double deviation) {
  if (std::isnan(deviation)) return shown(Quantity::constant(mean), "ms").words();
  const Quantity q = plus_minus(Quantity::constant(mean), Quantity::constant(deviation));
  return shown(q, "± ms").words();
}

Table pivoted(const Pivot& pivot, std::span<const Table* const> tables) {
  std::vector<Keys> down;
  Keys across;
  std::map<std::pair<Keys, std::string>, std::string> cells;
  std::size_t others = 0;
  for (const Table* const table : tables) {
    for (const auto& row : table->rows) {
      const bool fits = std::ranges::all_of(pivot.where, [&](const auto& condition) {
        const Json* cell = cell_in(*table, row, condition.first);
        return cell != nullptr && words_of(*cell) == condition.second;
      });
      const std::optional<Keys> d = keys_of(*table, row, pivot.down),
                                a = keys_of(*table, row, {pivot.across});
      if (!fits || !d || !a) continue;
      const std::string value = value_of(*table, row, pivot.value);
      if (value.empty()) continue;
      add_once(*d, down);
      add_once(a->front(), across);
      if (!cells.emplace(std::pair(*d, a->front()), value).second) ++others;
    }
  }
  if (!pivot.down.empty()) sort_numbers(down, [](const Keys& d) { return d.front(); });
  sort_numbers(across, [](const std::string& a) { return a; });
  Table out{.name = "pivot", .title = pivot.title};
  for (const std::string& name : pivot.down) out.columns.push_back(as_key(text_column(name)));
  for (const std::string& a : across) {
    out.columns.push_back(
        text_column(a.empty() ? "none" : a, fmt::format("{} {}", pivot.across, a)));
  }
  for (const Keys& d : down) {
    std::vector<Json> row(d.begin(), d.end());
    for (const std::string& a : across) {
      const auto found = cells.find({d, a});
      row.push_back(found == cells.end() ? Json() : Json(found->second));
    }
    out.add_row(std::move(row));
  }
  if (others > 0) {
    out.notes.push_back(fmt::format("{} more rows have the keys of another one here", others));
  }
  return out;
}

}  // namespace tracestep::pages
