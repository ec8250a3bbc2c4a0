// Medians of timed samples as numbers of an answer, with the noise that their samples show.
#pragma once

#include "lab/report/evidence.h"

namespace tracestep {

// The median of a cell with a list of samples. It lies in the 95 % interval of median_interval(),
// with fewer than six samples anywhere among them, and with a single one between 0 and twice it:
// one sample says nothing about noise.
Quantity median_in(const Evidence::Row& row, std::string_view column);

// How far the samples lie apart, in percent of their median.
Quantity spread_percent_in(const Evidence::Row& row, std::string_view column);

}  // namespace tracestep
