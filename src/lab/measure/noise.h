// Medians of timed samples as numbers of an answer, with the noise that their samples show.
#pragma once

#include "lab/report/evidence.h"

namespace tracestep {

// The median of a cell with a list of samples. It lies in the 95 % interval of median_interval(),
// of the samples or, where several processes or visits took them, of their medians; with fewer than
// six of these anywhere among them, and with a single one between 0 and twice it: one says nothing
// about noise.
Quantity median_in(const Evidence::Row& row, std::string_view column);

// A step's time: median_in() its samples; of a profile, the median of its plain steps, exactly.
Quantity time_of(const Evidence::Row& row);

// The first cell's samples over the second's. Where both were visited in the same rounds it is the
// median of the visits' ratios, in the interval of these; else the ratio of median_in() of both.
Quantity paired_in(const Evidence::Row& a, std::string_view column_a, const Evidence::Row& b,
                   std::string_view column_b);

// How far the samples lie apart, in percent of their median.
Quantity spread_percent_in(const Evidence::Row& row, std::string_view column);

}  // namespace tracestep
