// A hand-in of a study: its answers in the order of the handout's problems, with tables of size
// against context as handouts have them, and times of one's own beside ours and published ones.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lab/study/study.h"

namespace tracestep {

// A time that somebody measured: a row of a file with the columns mean_ms, std_ms and n, and
// settings of runs in all others: size, context, mode, precision.
struct OwnTime {
  std::vector<std::pair<std::string, std::string>> cell;  // settings
  double mean_ms = 0, std_ms = 0;
  std::int64_t steps = 0;
  std::size_t line = 0;  // of the file

  std::string setting(std::string_view name) const;  // empty: not said
};
// Error{kInput} naming `name` and the line of what is wrong.
std::vector<OwnTime> read_own_times(std::string_view csv, const std::string& name);

// Rows: times of one's own, beside the cell of the study and the published ones with the same
// settings; a note names those that have none.
Table own_times_table(std::span<const OwnTime> times, const StudyReport& report);

// The hand-in; `own` may be empty. `charts`: the folder of its pictures, beside it.
std::string course_page(const StudyReport& report, const Json& environment,
                        std::span<const OwnTime> own, Format format, const std::string& charts);

}  // namespace tracestep
