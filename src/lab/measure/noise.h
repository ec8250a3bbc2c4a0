// Medians of timed samples as numbers of an answer, with the noise that their samples show.
#pragma once

#include "lab/report/evidence.h"

namespace tracestep {

// Returns the median of a cell's list of samples, with its 95 % interval by median_interval(): of
// the samples, or of the medians of processes or visits if there are several. With fewer than six
// values the interval is their range, and with a single one from 0 to twice the value, because one
// sample tells nothing about noise.
Quantity median_in(const Evidence::Row& row, std::string_view column);

// Returns the time of a step: median_in() of its samples. In a row of a profile, it is the median
// of the unrecorded steps, taken as exact.
Quantity time_of(const Evidence::Row& row);

// Returns the ratio of the first cell's time to the second's. If both were visited in the same
// rounds, it is the median of the ratios of paired visits with their interval; else the ratio of
// median_in() of both.
Quantity paired_in(const Evidence::Row& a, std::string_view column_a, const Evidence::Row& b,
                   std::string_view column_b);

// Returns the range of the samples, the longest minus the shortest, in percent of their median.
Quantity spread_percent_in(const Evidence::Row& row, std::string_view column);

}  // namespace tracestep
