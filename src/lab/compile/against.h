// Columns for a row's times, and for their ratio to the times of the row that it is compared with.
#pragma once

#include <optional>
#include <string>

#include "lab/measure/comparison.h"
#include "lab/report/fields.h"

namespace tracestep {

// The comparison of a row's times with those of the row that it is set against.
struct Against {
  Comparison comparison;

  static std::optional<Against> of(const std::optional<TimedSamples>& base,
                                   const TimedSamples& samples);
  Json speedup() const { return finite_or_null(1.0 / comparison.ratio); }
};

// Columns of a comparison. `prefix`: of their names; `what`: what the rows are compared with.
Fields<Against> against_fields(const std::string& prefix, const std::string& title,
                               const std::string& what);
// Columns with the statistics of one list of samples.
Fields<TimedSamples> time_fields(const std::string& prefix, const std::string& title);

inline constexpr const char* kIsNote =
    "is: faster or slower beyond chance, with an interval that passes 2 %, or slightly so where "
    "all of it lies within 2 %; same: within 2 %, and not apart beyond chance; else unclear";

}  // namespace tracestep
