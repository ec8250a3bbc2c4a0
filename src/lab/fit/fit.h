// Answers if a step fits into a device's memory, and which command runs it. By predicted peaks;
// nothing runs.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>

#include "base/enum_words.h"
#include "lab/fit/search.h"
#include "lab/memory/tables.h"
#include "lab/report/fields.h"

namespace tracestep {

// The tables below show times if `times` predicts them; nullptr: they have none.

// Tells how a peak compares with the limit, and with the limit less the margin.
enum class FitVerdict : std::uint8_t { kFits, kTight, kDoesNotFit };
TRACESTEP_WORDS(FitVerdict, "ok", "tight", "oom");
FitVerdict fit_verdict(std::int64_t peak_bytes, const FitQuestion& question);

// A row with the step as asked: its peak, the limit, the bytes left or missing, and the command
// that runs it.
Table fit_table(const MemoryCell& cell, const FitQuestion& question);

// The flags that describe a step where it differs from every command's defaults. On a CPU they
// include the threads, on which the peak depends. Fields in `left_out` are omitted.
std::string flags_of(const RunSpec& step, const std::set<std::string>& left_out = {});
// "tracestep bench --size small … --recompute blocks": the command that times this step.
std::string command_of(const RunSpec& step);
// Returns data-only columns of batch, context and precision as asked for, for a page's sentence.
Fields<RunSpec> task_fields();

}  // namespace tracestep
