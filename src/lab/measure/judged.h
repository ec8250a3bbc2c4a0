// What the validity checker has said of rows, counted for sentences.
#pragma once

#include <initializer_list>
#include <string_view>
#include <vector>

#include "lab/report/evidence.h"

namespace tracestep {

// How many of the rows have a verdict that begins with one of these words.
Quantity count_where(const std::vector<Evidence::Row>& rows,
                     std::initializer_list<std::string_view> starts);

// How the rows stand that the table of all verdicts leaves out: those of attention alone are judged
// in their own tables, and starts not at all. Empty where the report has none.
Text beside_validity(const Evidence& e);

}  // namespace tracestep
