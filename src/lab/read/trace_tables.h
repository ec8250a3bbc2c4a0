// The tables of a recording: of its steps, and of a step's time by kind, pass, module, kernel and
// gap.
#pragma once

#include <map>
#include <vector>

#include "lab/read/trace_times.h"
#include "lab/report/table.h"

namespace tracestep {

// A recording, with everything that its tables are made from.
struct ReadTrace {
  TraceFacts facts = {};
  TraceTimes times = {};
  EagerKernels eager = {};

  std::string name_of(const Part& part) const;
  // The device's name; empty if there is no device or the file does not name it.
  std::string gpu() const;
};
// Reads a recording. Kernels in replays of CUDA graphs get the names of ops and modules from
// `eager`, a recording of the same program without graphs, or else from this file's own eager
// launches. `kept_step`: the step whose pieces of work are kept in TraceTimes.
ReadTrace read_trace_of_file(const std::filesystem::path& path, const ReadTrace* eager = nullptr,
                             std::int32_t kept_step = -1);

// The tables "recording" (one row); "time", by kind and gap, which adds up to a step; "passes";
// "modules"; "kernels"; "gaps". Parts of a step are means over all steps, so that they add up.
// Tables that would be empty are left out.
std::vector<Table> trace_tables(const ReadTrace& trace);

// The table "step": every piece of work of the kept step, by its begin, for drawing a time line.
// Empty if no step was kept.
Table step_table(const ReadTrace& trace);

// The table "ops": every op and range of the host by name over the whole file, with calls, total
// time, and the time outside of other ops, as PyTorch's key_averages() sums them.
Table op_table(const ReadTrace& trace);

// Returns the table "ranks", with a row for each of several ranks' recordings: the time of a step
// and of collectives, the time waited in them, and how often the rank came last. There is no table
// if ranks are not known, or not different.
std::vector<Table> rank_tables(const std::vector<ReadTrace>& traces);

}  // namespace tracestep
