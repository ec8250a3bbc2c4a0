#include "lab/report/chart/chart_rows.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "base/error.h"
#include "base/units.h"
#include "lab/report/digits.h"

namespace tracestep {

ChartRows::ChartRows(const Chart& chart, std::span<const Table> tables, std::string_view table) {
  const auto found = std::ranges::find(tables, table, &Table::name);
  if (found == tables.end()) return;
  table_ = &*found;
  const Json* where = table == chart.table ? chart.options.find("where") : nullptr;
  for (const std::vector<Json>& row : table_->rows) {
    rows_.push_back(&row);
    if (where == nullptr) continue;
    const bool fits = std::ranges::all_of(where->members(), [&](const auto& member) {
      const Json* value = cell(rows_.size() - 1, member.first);
      const auto& [name, wanted] = member;
      if (value == nullptr || !wanted.is_array()) return value != nullptr && *value == wanted;
      return std::ranges::find(wanted.items(), *value) != wanted.items().end();
    });
    if (!fits) rows_.pop_back();
  }
}

const Column* ChartRows::column(std::string_view name) const {
  const auto index = table_ == nullptr ? std::nullopt : table_->index_of(name);
  return index ? &table_->columns[*index] : nullptr;
}

std::span<const Column> ChartRows::columns() const {
  return table_ == nullptr ? std::span<const Column>() : table_->columns;
}

const Json* ChartRows::cell(std::size_t row, std::string_view name) const {
  const Column* found = column(name);
  if (found == nullptr) return nullptr;
  return &(*rows_[row])[static_cast<std::size_t>(found - table_->columns.data())];
}

std::optional<double> ChartRows::number(std::size_t row, std::string_view column) const {
  const Json* value = cell(row, column);
  if (value == nullptr || !value->is_number() || !std::isfinite(value->as_double())) return {};
  return value->as_double();
}

std::string ChartRows::text(std::size_t row, std::string_view column) const {
  const Json* value = cell(row, column);
  if (value == nullptr || value->is_null()) return {};
  return value->is_string() ? value->as_string() : value->dump();
}

std::vector<double> ChartRows::list(std::size_t row, std::string_view column) const {
  const Json* value = cell(row, column);
  std::vector<double> out;
  if (value == nullptr || !value->is_array()) return out;
  for (const Json& item : value->items()) {
    if (item.is_number()) out.push_back(item.as_double());
  }
  return out;
}

std::vector<std::string> names_of(const Chart& chart, std::string_view option) {
  const Json* value = chart.options.find(option);
  std::vector<std::string> out;
  if (value == nullptr) return out;
  if (value->is_string()) return {value->as_string()};
  for (const Json& name : value->items()) out.push_back(name.as_string());
  return out;
}

std::string text_option(const Chart& chart, std::string_view option) {
  const Json* value = chart.options.find(option);
  return value == nullptr ? std::string() : value->as_string();
}

bool is_logarithmic(const Chart& chart, char axis) {
  return text_option(chart, "log").find(axis) != std::string::npos;
}

std::vector<std::string> keys_apart(const ChartRows& rows, const RowGroups& groups,
                                    std::span<const std::string> known) {
  std::vector<std::string> out;
  for (const Column& column : rows.columns()) {
    // A row's own name differs in each.
    const bool is_name = column.kind == ColumnKind::kStructured || column.name == "label";
    const bool is_known = std::ranges::find(known, column.name) != known.end();
    if (column.role != ColumnRole::kKey || is_name || is_known) continue;
    const bool differs = std::ranges::any_of(groups, [&](const auto& group) {
      const std::vector<std::size_t>& all = group.second;
      return std::ranges::any_of(all, [&](std::size_t row) {
        return rows.text(row, column.name) != rows.text(all.front(), column.name);
      });
    });
    if (differs) out.push_back(column.name);
  }
  return out;
}

void fail_alike(const Chart& chart, std::string_view name) {
  throw Error(
      ErrorCode::kInput, chart.table,
      fmt::format("two rows are \"{}\" in a chart of it, and no key tells them apart", name),
      "a row that stands there twice is to be left out");
}

std::optional<Whisker> whisker_of(const Chart& chart, const ChartRows& rows, std::size_t row,
                                  const std::string& column) {
  const Json* ranges = chart.options.find("range");
  const Json* names = ranges == nullptr ? nullptr : ranges->find(column);
  constexpr std::string_view kMedian = "median_ms";
  std::string from, to;
  if (names != nullptr) {
    from = names->items()[0].as_string();
    to = names->items()[1].as_string();
  } else if (column.ends_with(kMedian)) {
    const std::string part = column.substr(0, column.size() - kMedian.size());
    from = part + "interval_low_ms";
    to = part + "interval_high_ms";
  }
  const auto low = rows.number(row, from), high = rows.number(row, to);
  if (!low || !high) return {};
  return Whisker{*low, *high};
}

AxisUnit unit_of(const Column* column) {
  const bool is_bytes = column != nullptr && column->kind == ColumnKind::kBytes;
  return is_bytes ? AxisUnit::kBytes : AxisUnit::kNumber;
}

std::string name_of_all(std::span<const std::string> names, const Column* first) {
  if (names.size() < 2 || first == nullptr) return axis_name(first);
  if (unit_of(first) == AxisUnit::kBytes) return "bytes";
  return first->unit.empty() ? axis_name(first) : first->unit;
}

std::string title_of(const Column& column) {
  return column.title.empty() ? column.name : column.title;
}

std::string axis_name(const Column* column) {
  if (column == nullptr) return {};
  if (column->unit.empty() || column->kind == ColumnKind::kBytes) return title_of(*column);
  return fmt::format("{} ({})", title_of(*column), column->unit);
}

std::string labelled(double value, const Column* column) {
  if (unit_of(column) == AxisUnit::kBytes) return format_bytes(std::llround(value));
  const bool has_unit = column != nullptr && !column->unit.empty();
  const std::string number = std::abs(value) < 1000  ? fmt::format("{:.3g}", value)
                             : std::abs(value) < 1e7 ? grouped(std::llround(value))
                                                     : fmt::format("{:.3g}", value);
  return fmt::format("{}{}{}", number, has_unit ? " " : "", has_unit ? column->unit : "");
}

std::vector<std::string> in_order_of_phases(std::vector<std::string> names) {
  std::vector<std::string> out;
  for (const char* phase : {"forward", "backward", "optimizer", "communication", "none"}) {
    if (std::ranges::find(names, phase) != names.end()) out.emplace_back(phase);
  }
  for (std::string& name : names) {
    if (std::ranges::find(out, name) == out.end()) out.push_back(std::move(name));
  }
  return out;
}

}  // namespace tracestep
