// Finds how large a batch or a context fits, as a step is asked for and with changes that keep its
// task. By predicted peaks; nothing runs.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/enum_words.h"
#include "lab/fit/remedy.h"
#include "lab/report/table.h"

namespace tracestep {

// The size that --largest varies.
enum class Growth : std::uint8_t { kBatch, kContext };
TRACESTEP_WORDS(Growth, "batch", "context");

// A table of the largest sizes. The first row is the step as asked; each further row has a set of
// changes, in order of severity, with a size at least a tenth above the rows before it. A row gives
// the largest batch (a multiple of the replicas), or context in steps of 64 tokens, that leaves the
// margin free, with its peak, time and command. If ranks may share the step in several ways, the
// row uses the way with the largest size. The changes are those of a search for a step that fits
// (lab/fit/search.h) without micro-batches; everything in bfloat16, which is another task, is used
// only if no other set fits the size as asked. Cells are empty if not even the smallest size fits.
// Notes name rows whose size ends at a limit of the commands (1 Mi) or at the model's positions,
// and not at the memory.
Table largest_table(const FitQuestion& asked, Growth growth);

// The step at the longest context among the powers of two from 64 on whose predicted peak is within
// the limit; nullopt if 64 tokens exceed it.
std::optional<RunSpec> at_largest_context(RunSpec step, const DeviceTraits& traits,
                                          std::int64_t limit_bytes);

}  // namespace tracestep
