#include "lab/report/evidence.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/units.h"

namespace tracestep {
namespace {

std::optional<std::size_t> index_of(const Table& table, std::string_view column) {
  const auto found = std::ranges::find(table.columns, column, &Column::name);
  if (found == table.columns.end()) return std::nullopt;
  return static_cast<std::size_t>(found - table.columns.begin());
}

bool matches(const Table& table, std::size_t row, const Evidence::Where& where) {
  return std::ranges::all_of(where, [&](const auto& condition) {
    const auto column = index_of(table, condition.first);
    return column && table.rows[row][*column] == condition.second;
  });
}

// "size small, mode step"
std::string words_of(const Evidence::Where& where) {
  std::string out;
  for (const auto& [column, value] : where) {
    out += fmt::format("{}{} {}", out.empty() ? "" : ", ", column,
                       value.is_string() ? value.as_string() : value.dump());
  }
  return out;
}

}  // namespace

void require(bool condition, const std::string& why) {
  if (!condition) throw Unsupported(why);
}

const Table& Evidence::table(std::string_view name) const {
  const auto found = std::ranges::find(tables_, name, &Table::name);
  require(found != tables_.end(), fmt::format("this run has no table {}", name));
  return *found;
}

void Evidence::note(const Table& table, std::size_t row, std::string_view column) const {
  auto found = std::ranges::find_if(
      used_, [&](const RowRef& r) { return r.table == table.name && r.row == row; });
  if (found == used_.end()) found = used_.insert(used_.end(), {table.name, row, {}});
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
  require(!out.empty(),
          where.empty() ? fmt::format("the table {} is empty", name)
                        : fmt::format("the table {} has no row with {}", name, words_of(where)));
  return out;
}

Evidence::Row Evidence::row(std::string_view name, const Where& where) const {
  return rows(name, where).front();
}

Evidence::Row Evidence::largest(std::string_view name, const Where& where,
                                std::string_view column) const {
  const std::vector<Row> all = rows(name, where);
  return *std::ranges::max_element(all, {}, [&](const Row& row) {
    const Json* cell = row.cell(column);  // looked at, not read: no part of the answer
    return cell != nullptr && cell->is_number() ? cell->as_double() : -1.0;
  });
}

const Json* Evidence::Row::cell(std::string_view column) const {
  const auto index = index_of(*table_, column);
  return index ? &table_->rows[index_][*index] : nullptr;
}

const Json& Evidence::Row::present(std::string_view column) const {
  const Json* found = cell(column);
  require(found != nullptr, fmt::format("the table {} has no column {}", table_->name, column));
  require(!found->is_null(), fmt::format("the table {} is empty in row {}, column {}", table_->name,
                                         index_ + 1, column));
  evidence_->note(*table_, index_, column);
  return *found;
}

double Evidence::Row::number(std::string_view column) const {
  const Json& value = present(column);
  require(value.is_number(), fmt::format("{} of {} is no number", column, table_->name));
  return value.as_double();
}

std::int64_t Evidence::Row::whole(std::string_view column) const {
  const Json& value = present(column);
  require(value.is_int(), fmt::format("{} of {} is no whole number", column, table_->name));
  return value.as_int();
}

std::string Evidence::Row::text(std::string_view column) const {
  const Json& value = present(column);
  require(value.is_string(), fmt::format("{} of {} is no text", column, table_->name));
  return value.as_string();
}

bool Evidence::Row::truth(std::string_view column) const {
  const Json& value = present(column);
  require(value.is_bool(), fmt::format("{} of {} is neither true nor false", column, table_->name));
  return value.as_bool();
}

std::vector<double> Evidence::Row::numbers(std::string_view column) const {
  const Json& value = present(column);
  require(value.is_array(), fmt::format("{} of {} is no list", column, table_->name));
  std::vector<double> out;
  for (const Json& item : value.items()) out.push_back(item.as_double());
  return out;
}

std::string Evidence::Row::bytes(std::string_view column) const {
  return format_bytes(whole(column));
}

std::string Evidence::Row::duration(std::string_view column) const {
  return format_duration_ms(number(column));
}

std::optional<double> Evidence::Row::number_if(std::string_view column) const {
  const Json* found = cell(column);
  if (found == nullptr || !found->is_number()) return std::nullopt;
  return number(column);
}

std::string Evidence::Row::text_or(std::string_view column, std::string_view otherwise) const {
  const Json* found = cell(column);
  return found != nullptr && found->is_string() ? text(column) : std::string(otherwise);
}

}  // namespace tracestep
