// A user's own times, beside those of a study and published ones: typed into a file, or read from
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

// The parts of a recorded step in percent, including gaps, and its number of kernels.
struct OwnRecording {
  // Kind of work and its share: "matrix products", 43.9.
  std::vector<std::pair<std::string, double>> shares;
  double calls = 0;  // The number of kernels; on a CPU, of ops.
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
  std::size_t line = 0;  // The line of the file.

  std::string setting(std::string_view name) const;  // A setting of the run; empty: not stated.
};
// Reads times from a CSV file; `file`: its path, as traces are named relative to its folder. Throws
// Error{kInput} naming the file and the line of what is wrong: settings that a command would refuse
// too, a cell that stands twice, and numbers that no time has.
std::vector<OwnTime> read_own_times(std::string_view csv, const std::filesystem::path& file);

// The table "mine" with a row for each time, beside the study's cell and the published times with
// the same settings; a note names times that have none. If there are recordings, the table
// "recordings": the kinds of work in each, beside the products and launches in the study's profile
// of that cell.
std::vector<Table> own_times_tables(std::span<const OwnTime> times, const StudyReport& report);

}  // namespace tracestep
