// The results of the attention benchmark as tables: every cell, and how memory grows with the
// context.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "lab/attention/run.h"
#include "lab/report/table.h"

namespace tracestep {

// The least-squares fit a·t² + b·t + c through the points.
struct QuadraticFit {
  double a = 0, b = 0, c = 0;
  double largest_error = 0;  // The largest |fit − value| / value of all points.
};
// Fits by least squares. CHECKs that `s` has at least three different values.
QuadraticFit fit_quadratic(std::span<const double> s, std::span<const double> values);

// A row for each cell, with the validity checker's verdict if the device computes numbers.
Table attention_table(std::span<const AttentionResult> results, const Json& environment);

// Empties the times in rows of a device that computes no numbers. The rows of `table` belong to
// `results`, in order.
void empty_times_of(std::span<const AttentionResult> results, Table& table);

// Hides the column of heads if every cell has one head.
void show_heads(Table& table);

// Puts the validity checker's verdicts on all parts of each cell into the column `verdict` of a
// table whose rows are these results, and the checker's notes below the table.
void add_verdicts(Table& table, std::span<const AttentionResult> results, const Json& environment);

// A row for each width, mask, form and precision with at least three contexts that ran: how memory
// grows with the context.
Table attention_scaling_table(std::span<const AttentionResult> results);

// Rows: the buffers that are alive before backward or at the peak of one cell, then their sum and
// what was measured; columns: shape in letters, the product worked out with this cell's numbers,
// and bytes. A cell that ran out of memory shows what it would have taken.
Table attention_account_table(const AttentionResult& result, const DeviceFactory& make_device);

}  // namespace tracestep
