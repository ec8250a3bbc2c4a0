// Figures of a page as a table with their derivation, and text with figures in it: what topics and
// claims of `explain` are printed from.
#pragma once

#include <string>
#include <string_view>

#include "lab/pages/formula.h"
#include "lab/pages/page.h"
#include "lab/report/quantity.h"
#include "lab/report/table.h"

namespace tracestep::pages {

// Makes a table for figures: what, formula, formula with numbers, value as text and number, unit.
Table figure_table(std::string name);
// Adds a row for the figure and returns its value. Throws Unsupported if the formula has no value.
Quantity add_figure(Table& table, const Figure& figure, const Scope& scope);

// Replaces "{name}" and "{name:unit}" in the text. Throws Unsupported if a name has no value.
std::string filled(std::string_view text, const Scope& scope);

// Formats a value with a unit of a page's figures: "ms", "± ms" (a mean with its deviation), "ms
// band" (two digits and the interval), "± factor" (a ratio with its interval), "bytes", "percent",
// "%" (four digits), "+percent", "factor", "count", "flops", "tflops", "ratio", or an fmt
// specification (".3g").
Text shown(const Quantity& quantity, std::string_view unit);

}  // namespace tracestep::pages
