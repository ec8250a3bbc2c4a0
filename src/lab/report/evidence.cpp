#include "lab/report/evidence.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <iterator>

#include <fmt/format.h>

#include "base/utf8.h"
#include "spec/fields.h"

namespace tracestep {
namespace {

bool matches(const Table& table, std::size_t row, const Evidence::Where& where) {
  return std::ranges::all_of(where, [&](const auto& condition) {
    const auto column = table.index_of(condition.first);
    return column && table.rows[row][*column] == condition.second;
  });
}

// Says the cells that a row must have: "size small, mode step".
std::string words_of(const Evidence::Where& where) {
  std::string out;
  for (const auto& [column, value] : where) {
    out += fmt::format("{}{} {}", out.empty() ? "" : ", ", column,
                       value.is_string() ? value.as_string() : value.dump());
  }
  return out;
}

// Throws Unsupported with a reason in words of ours; it names tables and columns, not figures.
template <class... Args>
[[noreturn]] void refuse(fmt::format_string<Args...> words, Args&&... args) {
  throw Unsupported(Text(Piece{fmt::format(words, std::forward<Args>(args)...), Basis::kQuote}));
}

// Writes a name for a formula: in quotes unless it is a plain word.
std::string name_in_formula(const std::string& name) {
  const bool is_plain =
      std::ranges::all_of(name, [](unsigned char c) { return std::isalnum(c) != 0 || c == '_'; });
  return is_plain ? name : Json(name).dump();
}

}  // namespace

std::string list_of_rows(std::span<const std::size_t> rows, std::string_view comma,
                         std::string_view to) {
  std::string out;
  for (std::size_t i = 0; i < rows.size();) {
    std::size_t end = i + 1;
    while (end < rows.size() && rows[end] == rows[end - 1] + 1) ++end;
    const bool is_run = end - i > 2;
    if (!is_run) end = i + 1;
    out += fmt::format("{}{}", out.empty() ? "" : comma, rows[i]);
    if (is_run) out += fmt::format("{}{}", to, rows[end - 1]);
    i = end;
  }
  return out;
}

const Table& Evidence::table(std::string_view name) const {
  const auto found = std::ranges::find(tables_, name, &Table::name);
  if (found == tables_.end()) refuse("this run has no table {}", name);
  return *found;
}

void Evidence::note(const Table& table, std::size_t row, std::string_view column) const {
  // Searched from the end, because a row is usually read again right after it was read.
  auto found = std::find_if(used_.rbegin(), used_.rend(),
                            [&](const RowRef& r) { return r.row == row && r.table == table.name; });
  if (found == used_.rend()) {
    used_.push_back({table.name, row, {}});
    found = used_.rbegin();
  }
  if (std::ranges::find(found->columns, column) == found->columns.end()) {
    found->columns.emplace_back(column);
  }
}

std::optional<Evidence::Row> Evidence::find(std::string_view name, const Where& where) const {
  const auto found = std::ranges::find(tables_, name, &Table::name);
  if (found == tables_.end()) return std::nullopt;
  for (std::size_t i = 0; i < found->rows.size(); ++i) {
    if (matches(*found, i, where)) return Row(*this, *found, i);
  }
  return std::nullopt;
}

std::vector<Evidence::Row> Evidence::rows(std::string_view name, const Where& where) const {
  const Table& t = table(name);
  std::vector<Row> out;
  for (std::size_t i = 0; i < t.rows.size(); ++i) {
    if (matches(t, i, where)) out.push_back(Row(*this, t, i));
  }
  if (!out.empty()) return out;
  if (where.empty()) refuse("the table {} is empty", name);
  refuse("this run measured nothing with {} (table {})", words_of(where), name);
}

Evidence::Row Evidence::row(std::string_view name, const Where& where) const {
  return rows(name, where).front();
}

Evidence::Row Evidence::beside(const Row& row, const Where& changed) const {
  Where where = changed;
  for (std::size_t i = 0; i < row.table_->columns.size(); ++i) {
    const Column& column = row.table_->columns[i];
    const std::string& name = column.name;
    const bool is_changed =
        std::ranges::find(changed, name, &Where::value_type::first) != changed.end();
    // The pass is a key too, although runs have none: both rows are of the same pass.
    const bool is_key = find_field(name) != nullptr || column.role == ColumnRole::kKey;
    if (is_changed || !is_key) continue;
    where.emplace_back(name, row.table_->rows[row.index_][i]);
  }
  const std::string& name = row.table_->name;
  if (!find(name, where)) {
    refuse("this run did not measure the same with {} (table {}, row {})", words_of(changed), name,
           row.index_ + 1);
  }
  return this->row(name, where);
}

std::vector<Evidence::Row> Evidence::as(const Row& row, std::string_view name,
                                        const Where& changed) const {
  const Table& other = table(name);
  Where where = changed;
  for (const Column& column : row.table_->columns) {
    const bool is_changed =
        std::ranges::find(changed, column.name, &Where::value_type::first) != changed.end();
    const bool is_shared = column.role == ColumnRole::kKey && other.index_of(column.name);
    if (!is_shared || is_changed) continue;
    const Json& key = *row.cell(column.name);
    if (key.is_null()) refuse("this run has no {} here (table {})", column.name, row.table());
    where.emplace_back(column.name, key);
  }
  return rows(name, where);
}

std::vector<Evidence::Row> Evidence::same_cell(const Row& row, std::string_view name) const {
  const Json* cell = row.cell("cell");
  const bool has_some = cell != nullptr && cell->is_object() && find(name, {{"cell", *cell}});
  return has_some ? rows(name, {{"cell", *cell}}) : std::vector<Row>();
}

std::vector<Json> Evidence::cells_of(std::span<const RowRef> rows) const {
  std::vector<Json> out;
  for (const RowRef& ref : rows) {
    const Table& found = table(ref.table);
    const auto column = found.index_of("cell");
    if (!column) continue;
    const Json& cell = found.rows[ref.row][*column];
    const std::span<const Json> keys =
        cell.is_array() ? std::span<const Json>(cell.items()) : std::span(&cell, 1);
    std::ranges::copy_if(keys, std::back_inserter(out), &Json::is_object);
  }
  return out;
}

// True if a row of some table of runs has a model of this size with another vocabulary.
bool Evidence::has_namesake(const Json& size, const Json& vocab) const {
  return std::ranges::any_of(tables_, [&](const Table& table) {
    const auto size_at = table.index_of("size"), vocab_at = table.index_of("vocab");
    return size_at && vocab_at && table.index_of("cell") &&
           std::ranges::any_of(table.rows, [&](const auto& row) {
             return row[*size_at] == size && row[*vocab_at].is_int() && row[*vocab_at] != vocab;
           });
  });
}

const Json* Evidence::Row::cell(std::string_view column) const {
  const auto index = table_->index_of(column);
  return index ? &table_->rows[index_][*index] : nullptr;
}

const Json& Evidence::Row::present(std::string_view column) const {
  require_column(column);
  const Json* found = cell(column);
  evidence_->note(*table_, index_, column);
  if (found->is_null()) {
    refuse("this run has no {} here (table {})", column, table_->name);
  }
  return *found;
}

void Evidence::Row::require_column(std::string_view column) const {
  if (cell(column) == nullptr) refuse("the table {} has no column {}", table_->name, column);
}

std::string Evidence::Row::formula(std::string_view column) const {
  return formula_of({this, 1}, column);
}

double Evidence::Row::number(std::string_view column) const {
  const Json& value = present(column);
  if (!value.is_number()) refuse("{} of {} is no number", column, table_->name);
  return value.as_double();
}

Quantity Evidence::Row::get(std::string_view column) const {
  return Quantity::exact(number(column), formula(column));
}

Text Evidence::Row::quote(std::string_view column, std::size_t max_bytes) const {
  return Text(Piece{message_line(text(column), max_bytes), Basis::kQuote, formula(column)});
}

bool Evidence::Row::is_like(const Row& other) const {
  if (table_ != other.table_ || index_ == other.index_) return false;
  const auto is_key = [](const Column& column) {
    return column.role == ColumnRole::kKey && column.kind != ColumnKind::kStructured &&
           column.name != "label";
  };
  const bool has_keys = std::ranges::any_of(table_->columns, is_key);
  for (std::size_t i = 0; i < table_->columns.size(); ++i) {
    const Column& column = table_->columns[i];
    const Json &a = table_->rows[index_][i], &b = table_->rows[other.index_][i];
    if (is_key(column)) {
      if (a != b) return false;
      continue;
    }
    // What follows from other columns, and figures of the program, tell no runs apart that keys do
    // not.
    const bool is_part_figure =
        column.role == ColumnRole::kPart && column.kind == ColumnKind::kReal;
    const bool follows = column.role == ColumnRole::kFollows || column.role == ColumnRole::kExact ||
                         column.role == ColumnRole::kKey || column.kind == ColumnKind::kBytes ||
                         is_part_figure;
    if (has_keys && follows) continue;
    const auto is_measured = [](const Json& cell) {
      return cell.is_array() || cell.is_object() || (cell.is_number() && !cell.is_int());
    };
    const bool are_measured = is_measured(a) && is_measured(b);
    if (!are_measured && a != b) return false;
  }
  return true;
}

Text Evidence::Row::quote_apart(std::string_view column, std::size_t max_bytes) const {
  const std::string whole = text(column), cut = message_line(whole, max_bytes);
  const std::size_t index = *table_->index_of(column);
  std::size_t head = whole.size(), tail = whole.size();  // what all that look alike share
  for (const std::vector<Json>& row : table_->rows) {
    if (!row[index].is_string() || row[index].as_string() == whole) continue;
    const std::string& other = row[index].as_string();
    if (message_line(other, max_bytes) != cut) continue;
    const auto [front, of_other] = std::ranges::mismatch(whole, other);
    head = std::min(head, static_cast<std::size_t>(front - whole.begin()));
    const auto back = std::mismatch(whole.rbegin(), whole.rend(), other.rbegin(), other.rend());
    tail = std::min(tail, static_cast<std::size_t>(back.first - whole.rbegin()));
  }
  if (head == whole.size()) return quote(column, max_bytes);
  // Whole words: what stands between two underscores.
  while (head > 0 && whole[head - 1] != '_') --head;
  tail = std::min(tail, whole.size() - head);
  while (tail > 0 && whole[whole.size() - tail] != '_') --tail;
  const std::string middle = whole.substr(head, whole.size() - tail - head);
  return Text(
      Piece{"..." + message_line(middle, 2 * max_bytes) + "...", Basis::kQuote, formula(column)});
}

std::string Evidence::Row::text(std::string_view column) const {
  const Json& value = present(column);
  if (!value.is_string()) refuse("{} of {} is no text", column, table_->name);
  return value.as_string();
}

Text Evidence::Row::vocabulary() const {
  const Json *size = cell("size"), *vocab = cell("vocab");
  const bool is_needed = size != nullptr && vocab != nullptr && vocab->is_int() &&
                         evidence_->has_namesake(*size, *vocab);
  return is_needed ? say(", vocabulary {}", {tracestep::whole(get("vocab"))}) : Text();
}

Text Evidence::Row::model() const {
  return quote("size") + vocabulary();
}

Text Evidence::Row::name() const {
  if (cell("label") == nullptr) {  // as a command shows it, if columns say it
    return Text(Piece{label_of([this](const std::string& column) { return cell(column); })});
  }
  const auto label = [this](std::string_view without) {
    return label_of([&](const std::string& c) { return c == without ? nullptr : cell(c); });
  };
  const bool has_it = label("") != label("vocab");
  return quote("label") + (has_it ? Text() : vocabulary());
}

std::vector<double> Evidence::Row::numbers(std::string_view column) const {
  const Json& value = present(column);
  if (!value.is_array()) refuse("{} of {} is no list", column, table_->name);
  if (value.items().empty()) refuse("{} of {} is empty", column, table_->name);
  std::vector<double> out;
  for (const Json& item : value.items()) {
    if (!item.is_number() || !std::isfinite(item.as_double())) {
      refuse("{} of {} has what is no number", column, table_->name);
    }
    out.push_back(item.as_double());
  }
  return out;
}

std::string Evidence::Row::text_or(std::string_view column, std::string_view otherwise) const {
  return has(column) ? text(column) : std::string(otherwise);
}

bool Evidence::Row::has(std::string_view column) const {
  const Json* found = cell(column);
  return found != nullptr && !found->is_null();
}

bool Evidence::Row::is_list(std::string_view column) const {
  const Json* found = cell(column);
  return found != nullptr && found->is_array();
}

std::string formula_of(std::span<const Evidence::Row> rows, std::string_view column) {
  std::vector<std::size_t> numbers;
  for (const Evidence::Row& row : rows) numbers.push_back(row.index_ + 1);
  return fmt::format("{}[{}].{}", name_in_formula(rows.front().table_->name), list_of_rows(numbers),
                     column);
}

namespace {

// True if "1,4-6", as list_of_rows() writes it, has the number.
bool is_in_list(std::string_view list, std::size_t number) {
  while (!list.empty()) {
    const std::string_view part = list.substr(0, list.find(','));
    list.remove_prefix(std::min(list.size(), part.size() + 1));
    const std::size_t dash = part.find('-');
    const auto value = [](std::string_view digits) {
      std::size_t out = 0;
      std::from_chars(digits.data(), digits.data() + digits.size(), out);
      return out;
    };
    const std::size_t first = value(part.substr(0, dash));
    const std::size_t last = dash == std::string_view::npos ? first : value(part.substr(dash + 1));
    if (first <= number && number <= last) return true;
  }
  return false;
}

}  // namespace

bool formula_has_row(std::string_view formula, const std::string& table, std::size_t row) {
  const std::string opening = name_in_formula(table) + "[";
  for (std::size_t at = formula.find(opening); at != std::string_view::npos;
       at = formula.find(opening, at + 1)) {
    const char before = at == 0 ? ' ' : formula[at - 1];
    const bool is_name = std::isalnum(static_cast<unsigned char>(before)) == 0 && before != '_';
    const std::string_view list = formula.substr(at + opening.size());
    if (is_name && is_in_list(list.substr(0, list.find(']')), row + 1)) return true;
  }
  return false;
}

namespace {

// Returns the value; throws Unsupported where Quantity::exact() would.
double checked(double value) {
  return Quantity::exact(value, {}).value;
}

// Returns `fold` of the column's values, as a number whose formula calls it `function`.
template <class Fold>
Quantity folded(const char* function, std::span<const Evidence::Row> rows, std::string_view column,
                Fold fold) {
  std::vector<double> values;
  for (const Evidence::Row& row : rows) values.push_back(checked(row.number(column)));
  return Quantity::exact(fold(values), fmt::format("{}({})", function, formula_of(rows, column)));
}

double add_up(std::span<const double> values) {
  double out = 0;
  for (double v : values) out += v;
  return out;
}

Quantity of_list(const char* function, const Evidence::Row& row, std::string_view column,
                 double value) {
  return Quantity::exact(value, fmt::format("{}({})", function, row.formula(column)));
}

}  // namespace

Relation compare_texts(const Evidence::Row& a, const Evidence::Row& b, std::string_view column) {
  const std::string left = a.text(column), right = b.text(column);
  const Ordering order = left == right  ? Ordering::kEqual
                         : left < right ? Ordering::kLess
                                        : Ordering::kMore;
  const char* symbol = left == right ? "=" : left < right ? "<" : ">";
  return {order, fmt::format("{} {} {}", a.formula(column), symbol, b.formula(column))};
}

namespace {

// Refuses rows that are alike: one that stands twice would be added or counted twice.
void check_apart(std::span<const Evidence::Row> rows) {
  for (std::size_t i = 0; i < rows.size(); ++i) {
    for (std::size_t k = 0; k < i; ++k) {
      if (rows[i].is_like(rows[k])) refuse("two rows of the table {} are alike", rows[i].table());
    }
  }
}

}  // namespace

Quantity sum_of(std::span<const Evidence::Row> rows, std::string_view column) {
  check_apart(rows);
  return folded("sum", rows, column, add_up);
}

Quantity most_of(std::span<const Evidence::Row> rows, std::string_view column) {
  return folded("max", rows, column, [](const auto& v) { return *std::ranges::max_element(v); });
}

Quantity least_of(std::span<const Evidence::Row> rows, std::string_view column) {
  return folded("min", rows, column, [](const auto& v) { return *std::ranges::min_element(v); });
}

Quantity count_of(std::span<const Evidence::Row> rows, std::string_view column) {
  rows.front().require_column(column);
  check_apart(rows);
  const auto count =
      std::ranges::count_if(rows, [&](const Evidence::Row& row) { return row.has(column); });
  return Quantity::exact(static_cast<double>(count),
                         fmt::format("count({})", formula_of(rows, column)));
}

Quantity count_of(std::span<const Evidence::Row> rows, std::string_view column,
                  std::string_view value) {
  check_apart(rows);
  const auto count =
      std::ranges::count_if(rows, [&](const auto& row) { return row.text(column) == value; });
  return Quantity::exact(
      static_cast<double>(count),
      fmt::format("count({}, {})", formula_of(rows, column), Json(value).dump()));
}

Quantity count_in(const Evidence::Row& row, std::string_view column) {
  return of_list("count", row, column, static_cast<double>(row.numbers(column).size()));
}

Quantity most_in(const Evidence::Row& row, std::string_view column) {
  return of_list("max", row, column, std::ranges::max(row.numbers(column)));
}

Quantity least_in(const Evidence::Row& row, std::string_view column) {
  return of_list("min", row, column, std::ranges::min(row.numbers(column)));
}

}  // namespace tracestep
