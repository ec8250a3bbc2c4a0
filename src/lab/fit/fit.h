// Answers if a step fits into a device's memory. By predicted peaks; nothing runs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/enum_words.h"
#include "lab/fit/search.h"
#include "lab/memory/tables.h"

namespace tracestep {

// The tables below show times only if FitQuestion::times, which may be nullptr, predicts them.

// Tells how a peak compares with the limit, and with the limit less the margin.
enum class FitVerdict : std::uint8_t { kFits, kTight, kDoesNotFit };
TRACESTEP_WORDS(FitVerdict, "ok", "tight", "oom");
FitVerdict fit_verdict(std::int64_t peak_bytes, const FitQuestion& question);

// A row with the step as asked: its peak, the limit, the bytes left or missing, and the command
// that runs it.
Table fit_table(const MemoryCell& cell, const FitQuestion& question);

}  // namespace tracestep
