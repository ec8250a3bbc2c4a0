// Access to the rows and the options of a chart's table, for the drawings.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lab/report/chart/chart.h"
#include "lab/report/chart/scale.h"

namespace tracestep {

class ChartRows {
 public:
  // Selects the rows of `table` that fit the option "where"; none when there is no such table.
  ChartRows(const Chart& chart, std::span<const Table> tables, std::string_view table);

  std::size_t size() const { return rows_.size(); }
  bool empty() const { return rows_.empty(); }
  // Returns the number in a cell; nullopt for an empty cell, a missing column, or another kind.
  std::optional<double> number(std::size_t row, std::string_view column) const;
  std::string text(std::size_t row, std::string_view column) const;  // "" for an empty cell
  std::vector<double> list(std::size_t row, std::string_view column) const;
  // Returns the column with this name; nullptr: it is missing.
  const Column* column(std::string_view name) const;
  std::span<const Column> columns() const;

 private:
  const Json* cell(std::size_t row, std::string_view column) const;

  const Table* table_ = nullptr;
  std::vector<const std::vector<Json>*> rows_;
};

// Returns the texts of an option that holds a text or a list of texts; empty if the chart does not
// have the option.
std::vector<std::string> names_of(const Chart& chart, std::string_view option);
std::string text_option(const Chart& chart, std::string_view option);
bool is_logarithmic(const Chart& chart, char axis);

using RowGroups = std::map<std::string, std::vector<std::size_t>>;  // Groups of rows by their name.
// Returns the key columns in which the rows of a group differ, without those in `known`.
std::vector<std::string> keys_apart(const ChartRows& rows, const RowGroups& groups,
                                    std::span<const std::string> known);
// Throws Error{kInput}: two rows have the same name, and no key column tells them apart.
[[noreturn]] void fail_alike(const Chart& chart, std::string_view name);

// An error bar, the least and the most that a value may be: from the option "range", and of a
// median from its interval, where the table has one.
struct Whisker {
  double low = 0, high = 0;
};
std::optional<Whisker> whisker_of(const Chart& chart, const ChartRows& rows, std::size_t row,
                                  const std::string& column);

AxisUnit unit_of(const Column* column);
// Returns the title and unit of a column as they stand beside an axis: "median (ms)".
std::string axis_name(const Column* column);
// Names an axis that several columns share: what their names have in common, and the unit.
std::string name_of_all(std::span<const std::string> names, const Column* first);
std::string title_of(const Column& column);
// Writes a value with its unit and no more digits than an eye can use: "12.3 ms".
std::string labelled(double value, const Column* column);

// Sorts names by the order of a step's phases, the others after them as they come: so each phase
// has the same colour in every chart.
std::vector<std::string> in_order_of_phases(std::vector<std::string> names);

}  // namespace tracestep
