// Times of somebody's own, beside a study's and published ones: typed into a file, or read from
// recordings of torch.profiler that the file names.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lab/study/study.h"
#include "run/run_spec.h"

namespace tracestep {

// The parts of a recorded step, in percent of it, gaps among them, and its kernels.
struct OwnRecording {
  std::vector<std::pair<std::string, double>> shares;  // "matrix products", 43.9
  double calls = 0;                                    // of a CPU: ops
};

// A time that somebody measured: a row of a file with settings of runs (size, context, mode and
// precision; batch, vocab and others where they are not the usual ones) and either the columns
// mean_ms, std_ms and n, or `trace`, a recording from which these are read. mean_ms may be OOM.
struct OwnTime {
  std::vector<std::pair<std::string, std::string>> cell;  // settings
  RunSpec run;                                            // as they say; else as usual
  double mean_ms = 0, std_ms = 0;
  std::int64_t steps = 0;
  bool is_oom = false;
  std::optional<OwnRecording> recorded = {};
  std::size_t line = 0;  // of the file

  std::string setting(std::string_view name) const;  // empty: not said
};
// `file` names traces as seen from its own folder.
// Error{kInput} naming the file and the line of what is wrong: settings that a command would refuse
// too, a cell that stands twice, and numbers that no time has.
std::vector<OwnTime> read_own_times(std::string_view csv, const std::filesystem::path& file);

// "mine", one row a time, beside the study's cell and the published times with the same settings; a
// note names those that have none. "recordings", if there are any: kinds of work of each beside the
// products and launches of the study's profile of that cell.
std::vector<Table> own_times_tables(std::span<const OwnTime> times, const StudyReport& report);

}  // namespace tracestep
