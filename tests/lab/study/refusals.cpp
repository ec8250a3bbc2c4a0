#include "lab/study/refusals.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <vector>

#include "spec/fields.h"

namespace tracestep::testing {
namespace {

using Names = std::vector<std::string>;

// The parts of `text` at the places of a pattern such as "the table {} has no column {}".
std::optional<Names> matched(const std::string& text, const std::string& pattern) {
  Names out;
  std::size_t at = 0, from = 0;
  while (true) {
    const std::size_t place = pattern.find("{}", from);
    const std::string words =
        pattern.substr(from, place == std::string::npos ? place : place - from);
    // The last words end the text; the first ones begin it.
    const std::size_t found = place == std::string::npos && text.ends_with(words)
                                  ? text.size() - words.size()
                                  : text.find(words, at);
    if (found == std::string::npos || found < at || (from == 0 && found != 0)) return {};
    if (from > 0) out.push_back(text.substr(at, found - at));
    at = found + words.size();
    if (place == std::string::npos) break;
    from = place + 2;
  }
  if (at != text.size()) return {};
  return out;
}

const Table* table_named(const std::string& name, std::span<const Table> tables) {
  const auto found = std::ranges::find(tables, name, &Table::name);
  return found == tables.end() ? nullptr : &*found;
}

std::optional<std::size_t> column_of(const Table& table, const std::string& name) {
  const auto found = std::ranges::find(table.columns, name, &Column::name);
  if (found == table.columns.end()) return {};
  return static_cast<std::size_t>(found - table.columns.begin());
}

// True if a row has the cells of "size small, mode step". A value may have commas of its own, so
// each condition ends where the next one names a column.
bool has_cells(const Table& table, const std::vector<Json>& row, const std::string& conditions) {
  for (std::size_t begin = 0; begin < conditions.size();) {
    const std::size_t space = conditions.find(' ', begin);
    const auto column = column_of(table, conditions.substr(begin, space - begin));
    if (!column) return false;
    std::size_t end = conditions.find(", ", space);
    while (end != std::string::npos &&
           !column_of(table, conditions.substr(end + 2, conditions.find(' ', end + 2) - end - 2))) {
      end = conditions.find(", ", end + 1);
    }
    end = std::min(end, conditions.size());
    const Json& cell = row[*column];
    const std::string said = cell.is_string() ? cell.as_string() : cell.dump();
    if (said != conditions.substr(space + 1, end - space - 1)) return false;
    begin = end + 2;
  }
  return true;
}

bool has_row(const std::string& name, const std::string& conditions,
             std::span<const Table> tables) {
  const Table* table = table_named(name, tables);
  return table != nullptr && std::ranges::any_of(table->rows, [&](const std::vector<Json>& row) {
           return has_cells(*table, row, conditions);
         });
}

// A reason that may be given for cells of a column, and the test of its truth.
struct CellReason {
  const char* pattern;
  bool (*is_true)(const Json& cell);
};
bool has_no_number(const Json& cell) {
  return cell.is_array() && std::ranges::any_of(cell.items(), [](const Json& item) {
           return !item.is_number() || !std::isfinite(item.as_double());
         });
}
const CellReason kCellReasons[] = {
    {"{} of {} has what is no number", has_no_number},  // before "is no number"
    {"this run has no {} here (table {})", [](const Json& c) { return c.is_null(); }},
    {"{} of {} is no whole number", [](const Json& c) { return !c.is_int(); }},
    {"{} of {} is no number", [](const Json& c) { return !c.is_number(); }},
    {"{} of {} is no text", [](const Json& c) { return !c.is_string(); }},
    {"{} of {} is neither true nor false", [](const Json& c) { return !c.is_bool(); }},
    {"{} of {} is no list", [](const Json& c) { return !c.is_array(); }},
    {"{} of {} is empty", [](const Json& c) { return c.is_array() && c.items().empty(); }},
};

bool any_cell(const std::string& column, const std::string& name, std::span<const Table> tables,
              bool (*is_true)(const Json& cell)) {
  const Table* table = table_named(name, tables);
  const auto index = table == nullptr ? std::nullopt : column_of(*table, column);
  return index && std::ranges::any_of(table->rows, [&](const std::vector<Json>& row) {
           return is_true(row[*index]);
         });
}

// Two rows that have the same keys, and elsewhere say the same but for lists, objects and
// fractions; in a table with keys also but for bytes, counts and what names or judges a row.
bool has_twins(const Table& table) {
  std::vector<bool> is_key;
  for (const Column& c : table.columns) {
    is_key.push_back(c.role == ColumnRole::kKey && c.kind != ColumnKind::kStructured &&
                     c.name != "label");
  }
  const bool has_keys = std::ranges::find(is_key, true) != is_key.end();
  std::set<std::string> seen;
  return std::ranges::any_of(table.rows, [&](const std::vector<Json>& row) {
    std::string text;
    for (std::size_t i = 0; i < row.size(); ++i) {
      const std::string& name = table.columns[i].name;
      const bool is_of_row = name == "label" || name == "verdict" || name == "launches" ||
                             name == "parameters" || name == "flops" ||
                             table.columns[i].kind == ColumnKind::kBytes;
      const bool is_measured =
          row[i].is_array() || row[i].is_object() || (row[i].is_number() && !row[i].is_int());
      const bool is_left_out = !is_key[i] && (is_measured || (has_keys && is_of_row));
      text += (is_left_out ? "" : row[i].dump()) + '\n';
    }
    return !seen.insert(text).second;
  });
}

}  // namespace

std::string wrong_reason(const std::string& reason, std::span<const Table> tables) {
  const std::string wrong = "what it misses is there";
  if (const auto names = matched(reason, "this run has no table {}")) {
    return table_named((*names)[0], tables) == nullptr ? "" : wrong;
  }
  if (const auto names = matched(reason, "the table {} is empty")) {
    const Table* table = table_named((*names)[0], tables);
    return table != nullptr && table->rows.empty() ? "" : wrong;
  }
  if (const auto names =
          matched(reason, "this run did not measure the same with {} (table {}, row {})")) {
    const Table* table = table_named((*names)[1], tables);
    if (table == nullptr) return wrong;
    const std::vector<Json>& like = table->rows.at(std::stoul((*names)[2]) - 1);
    std::string all = (*names)[0];  // the conditions, and every other setting of that run
    for (std::size_t i = 0; i < table->columns.size(); ++i) {
      const std::string& column = table->columns[i].name;
      const bool is_key =
          find_field(column) != nullptr || table->columns[i].role == ColumnRole::kKey;
      if (!is_key || (", " + all).find(", " + column + " ") != all.npos) continue;
      all += ", " + column + " " + (like[i].is_string() ? like[i].as_string() : like[i].dump());
    }
    return has_row((*names)[1], all, tables) ? wrong : "";
  }
  // Which rows it asks for only the page knows; some of the table are not among them, or have none.
  if (const auto names = matched(reason, "no row that it asks for of the table {} has {}")) {
    return table_named((*names)[0], tables) == nullptr ? wrong : "";
  }
  if (const auto names = matched(reason, "several rows of the table {} are of one run")) {
    const Table* table = table_named((*names)[0], tables);
    return table != nullptr && table->rows.size() > 1 ? "" : wrong;
  }
  if (const auto names = matched(reason, "this run measured nothing with {} (table {})")) {
    return has_row((*names)[1], (*names)[0], tables) ? wrong : "";
  }
  if (const auto names = matched(reason, "the table {} has no column {}")) {
    const Table* table = table_named((*names)[0], tables);
    return table != nullptr && !column_of(*table, (*names)[1]) ? "" : wrong;
  }
  if (const auto names = matched(reason, "two rows of the table {} are alike")) {
    const Table* table = table_named((*names)[0], tables);
    return table != nullptr && has_twins(*table) ? "" : wrong;
  }
  // Conditions other than equality are not repeated in the reason.
  if (const auto names = matched(reason, "the table {} has no row that it asks for")) return "";
  for (const CellReason& known : kCellReasons) {
    const auto names = matched(reason, known.pattern);
    if (names) return any_cell((*names)[0], (*names)[1], tables, known.is_true) ? "" : wrong;
  }
  return "a reason that nobody can check";
}

}  // namespace tracestep::testing
