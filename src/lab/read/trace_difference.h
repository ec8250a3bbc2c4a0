// Compares two recordings: finds what takes longer or shorter by more than steps differ within each
// recording.
#pragma once

#include <vector>

#include "lab/read/trace_tables.h"

namespace tracestep {

struct DifferenceOptions {
  double margin = 0.02;  // Ratios within this margin of 1 count as the same.
  // The probability, over all rows together, that any row is called different when nothing is.
  double chance = 0.01;
};

// The table "changes": the step, its kinds of work, passes, modules (alone, and with the modules in
// them) and kernels, each with its time in both recordings, the ratio with its interval, and a
// verdict. Each row has a Mann-Whitney test on its times by step; the error of all tests together
// is `chance` (Holm, "A simple sequentially rejective multiple test procedure", 1979). Steps of one
// recording drift together, which the tests do not see, so a difference must also be larger than
// that between the halves of either recording. Kernels that only one file has are matched by the op
// that launches them, the module and the number of calls.
Table difference_table(const ReadTrace& a, const ReadTrace& b, const DifferenceOptions& options);

// Compares two traces as above, with `eager` for kernels of graph replays (read_trace_of_file), or
// the holders of two snapshots. Throws Error{kInput} for files of different kinds.
Table recorded_difference(const std::filesystem::path& a, const std::filesystem::path& b,
                          const DifferenceOptions& options, const ReadTrace* eager = nullptr);

}  // namespace tracestep
