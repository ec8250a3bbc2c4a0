// The questions by topic, each list in a file of its own, and the few words they share.
#pragma once

#include <fmt/format.h>

#include "base/units.h"
#include "lab/study/answers.h"

namespace tracestep {

std::span<const Question> time_questions();       // steps and clocks
std::span<const Question> kernel_questions();     // what a profile shows
std::span<const Question> number_questions();     // formats, sums, precision
std::span<const Question> memory_questions();     // bytes of a step
std::span<const Question> attention_questions();  // attention alone
std::span<const Question> other_questions();      // training, published tables

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
