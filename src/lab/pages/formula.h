// The formulas of pages, from their text to a number with its interval: arithmetic over names, over
// cells of rows, and over figures that are looked up.
//
//   4*B*T^2*C / devices.fp32_tflops[A100 SXM 40 GB]
//   100 * (median(both.samples_ms) - time(forward)) / time(forward)
//
// A formula holds + - * / ^ ± and brackets, numbers, names of figures, and
//   row.column                        the cell; exact
//   median(row.column)                of a cell with samples, in its 95 % interval
//   spread(row.column)                how far samples lie apart, in percent of their median
//   min max sum count(rows.column)    over the rows of a name, or over the list in one cell
//   count(rows.column, "text")        how many of the rows say so
//   starting(rows.column, "text")     how many of the rows say what begins so
//   mean(rows.column)                 over the rows of a name
//   time(row)                         a step's median, as of its samples
//   paired(a.column, b.column)        samples of a over those of b, by rounds that visited both
//   min max(a, b, …)  abs(a)  ceil(a)  round(a)  log(a)  between(a, low, high)
//   source.what[key; key]             a look-up, whose keys are plain text
// The caller provides the names, rows and sources (Scope).
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "lab/report/evidence.h"

namespace tracestep {

struct LookUp {
  std::string source, what;
  std::vector<std::string> keys;
};

// The names that a formula may use. A function that is not set knows no names.
struct Scope {
  std::function<std::optional<Quantity>(std::string_view name)> figure = {};
  std::function<std::span<const Evidence::Row>(std::string_view name)> rows = {};
  std::function<Quantity(const LookUp& asked)> look_up = {};
  // The value of "element.what" for an element that is no row of a table; nullopt: there is no such
  // element.
  std::function<std::optional<Quantity>(std::string_view element, std::string_view what)> member =
      {};
  // The text that a name stands for if it is no number; used in texts only.
  std::function<std::optional<std::string>(std::string_view name)> word = {};
};

struct Evaluated {
  Quantity quantity;
  std::string numbers;  // the formula with a number in place of each name, cell and look-up
};

// Evaluates a formula. CHECKs that the text is a formula and uses known names only, because
// formulas come from our own pages. Throws Unsupported if a cell is missing or the number is not
// finite.
Evaluated evaluate(std::string_view formula, const Scope& scope);

// Writes up to seven digits, or all of a whole number: "3,406,809,600", "0.01000214", "1.5e-05".
std::string plain_number(double value);

}  // namespace tracestep
