// The tables of a recording: of its steps, and of a step's time by kind, pass, module, kernel and
// gap.
#pragma once

#include <map>
#include <vector>

#include "lab/read/trace_times.h"
#include "lab/report/table.h"

namespace tracestep {

// A recording with all that its tables are made of.
struct ReadTrace {
  TraceFacts facts = {};
  TraceTimes times = {};
  EagerKernels eager = {};

  std::string name_of(const Part& part) const;
  // The name of its device; "" where it has none, or the file does not say it.
  std::string gpu() const;
};
// Kernels in replays of CUDA graphs get their names from those that `eager`, a recording of the
// same program without graphs, launches one by one; without it, from those of the file itself.
// `kept_step`: TraceTimes has the pieces of work of that step.
ReadTrace read_trace_of_file(const std::filesystem::path& path, const ReadTrace* eager = nullptr,
                             std::int32_t kept_step = -1);

// "recording", one row; "time", by kind and gap: adds up to a step; "passes"; "modules"; "kernels";
// "gaps". Parts of a step are means over its steps, so that they add up. Tables that the file has
// nothing for are left out.
std::vector<Table> trace_tables(const ReadTrace& trace);

// "step": each piece of work of the kept step, by its begin: what a time line of it draws. Empty
// where none was kept.
Table step_table(const ReadTrace& trace);

// "ops": every op and range of the host by name, with its calls, its time and its time outside of
// other ops, as PyTorch's key_averages() adds them up; over the whole file.
Table op_table(const ReadTrace& trace);

// One row a file, of one recording by each of several ranks; and of each collective that all of
// them ran, who came last: "ranks". Files of ranks that are not told apart have no such table.
std::vector<Table> rank_tables(const std::vector<ReadTrace>& traces);

}  // namespace tracestep
