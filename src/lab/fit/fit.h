// Answers if a step fits into a device's memory, and which command runs it. By predicted peaks;
// nothing runs.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>

#include "lab/fit/search.h"
#include "lab/memory/tables.h"
#include "lab/report/fields.h"

namespace tracestep {

// In the tables below, `times` predicts how long each step takes; nullptr: no times are shown.

// Tells how a peak compares with the limit, and with the limit less the margin.
enum class FitVerdict : std::uint8_t { kFits, kTight, kDoesNotFit };
FitVerdict fit_verdict(std::int64_t peak_bytes, const FitQuestion& question);

// Row: the step as asked for, its peak, the limit, what is to spare or missing, and the command
// that runs it.
Table fit_table(const MemoryCell& cell, const FitQuestion& question);

// The flags that say which step it is, where it differs from the default of every command; on a CPU
// with its threads, on which the peak depends; without the fields of `left_out`.
std::string flags_of(const RunSpec& step, const std::set<std::string>& left_out = {});
// "tracestep bench --size small … --recompute blocks": the command that times this step.
std::string command_of(const RunSpec& step);
// The batch, context and precision of a step, which the sentence above a table says.
Fields<RunSpec> task_fields();

}  // namespace tracestep
