#include "lab/pages/pivot.h"

#include <algorithm>
#include <map>
#include <optional>

#include <fmt/ranges.h>

#include "base/error.h"
#include "base/units.h"
#include "lab/measure/statistics.h"
#include "lab/report/columns.h"
#include "lab/report/spread.h"
#include "lab/report/writers.h"

namespace tracestep::pages {
namespace {

using Keys = std::vector<std::string>;

// Returns the cell's text and unit, as the writers for people format it.
std::string displayed(const Column& column, const Json& cell) {
  Table alone{.columns = {column}};
  alone.columns[0].data_only = alone.columns[0].if_varies = false;
  alone.add_row({cell});
  const std::string unit = column.kind == ColumnKind::kBytes ? "" : column.unit;
  return display(alone).rows[0][0] + (unit.empty() ? "" : " ") + unit;
}

constexpr const char* kExceeds = " *";  // after bytes that do not fit

bool is_out_of_memory(const Table& table, const std::vector<Json>& row) {
  const Json* status = cell_in(table, row, "status");
  return status != nullptr && words_of(*status) == "oom";
}

// Returns the text that stands for a row; empty: none. Predicted bytes are shown even if they do
// not fit, with a mark; a time of what ran out of memory is "OOM".
std::string value_of(const Table& table, const std::vector<Json>& row, std::string_view name) {
  const Json* value = cell_in(table, row, name);
  const bool is_out = is_out_of_memory(table, row);
  if (value == nullptr || value->is_null()) return is_out ? "OOM" : "";
  const Column& column = table.columns[*table.index_of(name)];
  if (!value->is_array()) {
    const bool is_marked = is_out && column.kind == ColumnKind::kBytes;
    return displayed(column, *value) + (is_marked ? kExceeds : "");
  }
  const std::vector<double> samples = numbers_in(*value);
  if (samples.empty()) return is_out ? "OOM" : "";
  return mean_and_deviation(mean_of(samples), sample_std_of(samples));
}

bool is_number(const std::string& text) {
  return !text.empty() && text.find_first_not_of("0123456789") == text.npos && text.size() < 18;
}

// Sorts by size where `get` returns numbers for all; else leaves the order as it is.
template <class T, class Get>
void sort_numbers(std::vector<T>& all, Get get) {
  if (!std::ranges::all_of(all, [&](const T& each) { return is_number(get(each)); })) return;
  std::ranges::stable_sort(all, {}, [&](const T& each) { return std::stoll(get(each)); });
}

template <class T>
void add_once(const T& value, std::vector<T>& all) {
  if (std::ranges::find(all, value) == all.end()) all.push_back(value);
}

// A row of a table that has a place in the pivot.
struct Entry {
  const Table* table;
  const std::vector<Json>* row;
  std::string across, value;

  // Returns the cell in words; empty also if the table has no such column.
  std::string text(std::string_view column) const {
    const Json* cell = cell_in(*table, *row, column);
    return cell == nullptr ? "" : words_of(*cell);
  }
  Keys texts(const Keys& columns) const {
    Keys out;
    for (const std::string& column : columns) out.push_back(text(column));
    return out;
  }
};

// Returns the keys that tell what a row is of, without columns that just name each row.
Keys keys_of(const Table& table) {
  Keys out;
  for (const Column& column : table.columns) {
    const bool is_name = column.kind == ColumnKind::kStructured || column.name == "label";
    if (column.role == ColumnRole::kKey && !is_name) out.push_back(column.name);
  }
  return out;
}

std::vector<Entry> entries_of(const Pivot& pivot, std::span<const Table* const> tables) {
  std::vector<Entry> out;
  for (const Table* const table : tables) {
    Keys needed = pivot.down;
    needed.push_back(pivot.across);
    const bool has_all = std::ranges::all_of(
        needed, [&](const std::string& name) { return table->index_of(name).has_value(); });
    if (!has_all) continue;
    for (const auto& row : table->rows) {
      const bool fits = std::ranges::all_of(pivot.where, [&](const auto& condition) {
        const Json* cell = cell_in(*table, row, condition.first);
        return cell != nullptr && words_of(*cell) == condition.second;
      });
      if (!fits) continue;
      Entry entry{.table = table, .row = &row, .across = {}, .value = {}};
      entry.across = entry.text(pivot.across);
      entry.value = value_of(*table, row, pivot.value);
      if (!entry.value.empty()) out.push_back(std::move(entry));
    }
  }
  return out;
}

// True if both are of one run, as far as both tables have the keys.
bool is_same_run(const Entry& a, const Entry& b) {
  return std::ranges::all_of(keys_of(*a.table), [&](const std::string& key) {
    return !b.table->index_of(key) || a.text(key) == b.text(key);
  });
}

// Drops runs that an earlier table has as well.
void keep_first_runs(std::vector<Entry>& entries) {
  std::vector<Entry> out;
  for (Entry& entry : entries) {
    const bool is_again = std::ranges::any_of(out, [&](const Entry& known) {
      return known.table != entry.table && is_same_run(known, entry);
    });
    if (!is_again) out.push_back(std::move(entry));
  }
  entries = std::move(out);
}

// Sorts by model: in the order that is asked for, else by size, where all tables say it.
void sort_sizes(const Keys& order, std::vector<Entry>& entries) {
  if (!order.empty()) {
    std::ranges::stable_sort(entries, {}, [&](const Entry& entry) {
      return std::ranges::find(order, entry.text("size")) - order.begin();
    });
    return;
  }
  const auto parameters = [](const Entry& entry) {
    const Json* cell = cell_in(*entry.table, *entry.row, "parameters");
    return cell != nullptr && cell->is_int() ? cell->as_int() : 0;
  };
  if (std::ranges::all_of(entries, [&](const Entry& e) { return parameters(e) > 0; })) {
    std::ranges::stable_sort(entries, {}, parameters);
  }
}

// True if entries with equal `across` have equal texts for the key, as a size has one layer count.
bool follows_from_across(const std::vector<Entry>& entries, const std::string& key) {
  std::map<std::string, std::string> known;
  return std::ranges::all_of(entries, [&](const Entry& entry) {
    return known.emplace(entry.across, entry.text(key)).first->second == entry.text(key);
  });
}

// Returns the keys in which entries of one row of the pivot would differ, besides the one across.
Keys keys_within_rows(const Pivot& pivot, const std::vector<Entry>& entries) {
  Keys out;
  std::map<Keys, const Entry*> first;
  for (const Entry& entry : entries) {
    const Entry& other = *first.emplace(entry.texts(pivot.down), &entry).first->second;
    for (const std::string& key : keys_of(*entry.table)) {
      const bool is_named =
          key == pivot.across || std::ranges::find(pivot.down, key) != pivot.down.end();
      if (!is_named && entry.text(key) != other.text(key)) add_once(key, out);
    }
  }
  std::erase_if(out, [&](const std::string& key) { return follows_from_across(entries, key); });
  return out;
}

[[noreturn]] void fail_alike(const Pivot& pivot, const Entry& entry) {
  throw Error(ErrorCode::kInput, entry.table->name,
              fmt::format("two rows are alike in all keys: {}, {} {}",
                          fmt::join(entry.texts(pivot.down), ", "), pivot.across, entry.across),
              "a row that stands there twice is to be left out");
}

// Adds a note, "* does not fit: more than 21.19 GiB", if values are marked by a star.
void note_what_does_not_fit(const std::vector<Entry>& entries, Table& out) {
  Keys limits;
  bool is_marked = false;
  for (const Entry& entry : entries) {
    if (!entry.value.ends_with(kExceeds)) continue;
    is_marked = true;
    const Json* limit = cell_in(*entry.table, *entry.row, "limit_bytes");
    if (limit != nullptr && limit->is_int()) add_once(format_bytes(limit->as_int()), limits);
  }
  if (!is_marked) return;
  const std::string which =
      limits.empty() ? "" : fmt::format(": more than {}", fmt::join(limits, " or "));
  out.notes.push_back("* does not fit" + which);
}

// Adds a note on how many samples times have: "n = 6 to 30 of each time".
void note_counts(const Pivot& pivot, const std::vector<Entry>& entries, Table& out) {
  std::vector<std::size_t> counts;
  for (const Entry& entry : entries) {
    const Json* samples = cell_in(*entry.table, *entry.row, pivot.value);
    const bool has_some =
        samples != nullptr && samples->is_array() && !numbers_in(*samples).empty();
    if (has_some) counts.push_back(samples->items().size());
  }
  if (counts.empty()) return;
  const auto [least, most] = std::ranges::minmax(counts);
  out.notes.push_back(least == most ? fmt::format("n = {} of each time", most)
                                    : fmt::format("n = {} to {} of each time", least, most));
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

Table pivoted(const Pivot& asked, std::span<const Table* const> tables) {
  Pivot pivot = asked;
  std::vector<Entry> entries = entries_of(pivot, tables);
  keep_first_runs(entries);
  sort_sizes(pivot.order, entries);
  for (const std::string& key : keys_within_rows(pivot, entries)) pivot.down.push_back(key);
  std::vector<Keys> down;
  Keys across;
  std::map<std::pair<Keys, std::string>, std::string> cells;
  for (const Entry& entry : entries) {
    const Keys d = entry.texts(pivot.down);
    add_once(d, down);
    add_once(entry.across, across);
    if (!cells.emplace(std::pair(d, entry.across), entry.value).second) fail_alike(pivot, entry);
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
  note_what_does_not_fit(entries, out);
  note_counts(pivot, entries, out);
  return out;
}

}  // namespace tracestep::pages
