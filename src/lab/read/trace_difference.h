// Two recordings beside each other: what takes longer or shorter, beyond what steps differ by
// within each of them.
#pragma once

#include <vector>

#include "lab/read/trace_tables.h"

namespace tracestep {

struct DifferenceOptions {
  double margin = 0.02;  // what lies within it is the same
  double chance = 0.01;  // that any row is called different where nothing is, over all rows
};

// "changes": the step, its kinds of work, passes, modules (by themselves, and with those in them)
// and kernels, each with its time in both, the ratio with its interval, and a verdict. Each row has
// a test on the times of its steps (Mann-Whitney), and all together the error `chance` (Holm, "A
// simple sequentially rejective multiple test procedure", 1979). Steps of one recording drift
// together, which no test on them sees: a difference also has to be larger than what the halves of
// either recording differ by. Kernels of one file alone are matched by place: by the op that
// launches them, by module and number of calls.
Table difference_table(const ReadTrace& a, const ReadTrace& b, const DifferenceOptions& options);

// The above of two traces, with `eager` for kernels of graph replays (read_trace_of_file); of two
// snapshots, what they hold more or less of. Errors: kInput for files of two kinds.
Table recorded_difference(const std::filesystem::path& a, const std::filesystem::path& b,
                          const DifferenceOptions& options, const ReadTrace* eager = nullptr);

}  // namespace tracestep
