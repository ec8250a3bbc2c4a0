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

// Columns: what, its formula, the formula with numbers, the value as text, as number and its unit.
Table figure_table(std::string name);
// Adds the figure's line, and returns what it is. Unsupported where its formula has no value.
Quantity add_figure(Table& table, const Figure& figure, const Scope& scope);

// The text with "{name}" or "{name:unit}" replaced. Unsupported where one has no value.
std::string filled(std::string_view text, const Scope& scope);

// A figure of a page as it is printed. As a unit has it: "ms", "± ms" (a mean with its deviation),
// "ms band" (two digits and its band), "± factor" (a ratio and its interval), "bytes", "percent",
// "%" (four digits), "+percent", "factor", "count", "flops", "tflops", "ratio", or digits as fmt
// has them (".3g").
Text shown(const Quantity& quantity, std::string_view unit);

}  // namespace tracestep::pages
