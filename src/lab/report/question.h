// A question of the study and the function that composes its answer. Every folder of the lab lists
// its questions in questions.cpp.
#pragma once

#include <fmt/format.h>

#include "base/units.h"
#include "lab/report/evidence.h"

namespace tracestep {

struct Question {
  std::string_view id, topic, question, command;
  std::string (*compose)(const Evidence& evidence);  // throws Unsupported
};

inline double over(double a, double b) {
  require(b != 0.0, "a ratio has nothing below the line");
  return a / b;
}

// "12.3 %" of a share in percent; small ones keep a digit.
inline std::string percent_text(double percent) {
  return percent != 0.0 && percent < 1.0 && percent > -1.0 ? fmt::format("{:.2f} %", percent)
                                                           : fmt::format("{:.1f} %", percent);
}

inline std::string bytes_text(double bytes) {
  return format_bytes(static_cast<std::int64_t>(bytes));
}

}  // namespace tracestep
