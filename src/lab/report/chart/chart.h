// Charts of tables, drawn once, as SVG: the page embeds them, and --pictures writes them to files.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "lab/report/table.h"

namespace tracestep {

// A chart of a table's columns. `options` names columns and says how to draw them:
//   lines     x, y (columns), or list (a column of lists, one point an item) with x_title
//   bars      values (columns); label (columns), by default the keys in which rows differ; stack: a
//             column whose values are segments; over: columns over whose values a bar adds its rows
//             up; top: as many bars; skip: labels to leave out
//   roofline  series; ceilings: the table of them; dtypes: those whose ceilings of products are
//             drawn. Reads the columns of lab/profile's matrix.
//   timeline  the columns of lab/memory's stack; limit: bytes, drawn as a line;
//             row: what a row is, if no kernel
// and for lines and bars also
//   series    columns that tell lines apart          where   {column: value}, or a list of
//   log       "x", "y" or "xy"                               values: the rows to draw
//   range     {column: [low, high]}: the columns of its interval; a median's are found by name
//   cards     true: lines at the memory of usual graphics cards
// A bar or a point is one row, but for what `over` adds up: where rows would share a name, the keys
// in which they differ are part of it.
struct Chart {
  std::string kind = {}, title = {}, table = {};
  Json options = Json::object();
  std::string name = {};  // The name of its file; empty: it is made of table, title and label.
};

// Returns the cell of the chart's table, which stands after the "@" of the table's name: "small
// context 128 step". Empty if the table is of all cells.
std::string label_of(const Chart& chart);

// Returns the columns that a chart reads, for checks.
std::vector<std::string> chart_columns(const Chart& chart);

// Says what the chart shows: "median (ms): every measured cell".
std::string caption_of(const Chart& chart, std::span<const Table> tables);

struct ChartLook {
  double width = 760;  // The width in pixels, beside text of 12 pixels.
};
inline constexpr double kNarrowChart = 350;  // The width for telephones, in pixels.

// Draws a chart; empty when `tables` have nothing to draw. Throws Error{kInput} where two rows are
// alike in all keys, so that nothing tells their bars or points apart.
std::string draw_chart(const Chart& chart, std::span<const Table> tables,
                       const ChartLook& look = {});

}  // namespace tracestep
