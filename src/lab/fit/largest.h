// Finds how large a batch or a context fits, as a step is asked for and with changes that keep its
// task. By predicted peaks; nothing runs.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "lab/fit/remedy.h"
#include "lab/report/table.h"

namespace tracestep {

// The size that --largest varies.
enum class Growth : std::uint8_t { kBatch, kContext };
inline constexpr Growth kAllGrowths[] = {Growth::kBatch, Growth::kContext};
std::string_view name_of(Growth growth);
// nullopt: no growth has this name.
std::optional<Growth> growth_named(std::string_view name);

// Rows: the step as asked for, then sets of changes, the least severe first and each with a size at
// least a tenth above those before it: the largest batch (a multiple of the replicas), or context
// in steps of 64 tokens, that leaves the margin free, its peak, time and command. Where ranks may
// share the step in several ways, each row has the one with the largest size. Changes are those
// that a search for one that fits has (lab/fit/search.h), but for the division of the batch; one
// that is another task, everything in bfloat16, only where no other holds the size of the step.
// Empty cells: not even the smallest fits. Peaks are of whole programs. Notes name the rows whose
// size ends where commands do (1 Mi), or the model's positions, and not where the memory does.
Table largest_table(const FitQuestion& asked, Growth growth);

// The step at the longest context, of the powers of two from 64 on, whose predicted peak is within
// the limit; nothing where 64 is beyond it.
std::optional<RunSpec> at_largest_context(RunSpec step, const DeviceTraits& traits,
                                          std::int64_t limit_bytes);

}  // namespace tracestep
