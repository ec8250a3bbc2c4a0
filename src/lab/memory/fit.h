// Does a step fit into a device's memory, what is the least change that makes it fit, and how large
// a batch or context would? All by predicted peaks; nothing runs.
#pragma once

#include <cstdint>
#include <string>

#include "lab/memory/tables.h"

namespace tracestep {

// One row: the step as asked for, its peak, the limit, what is to spare or missing, and the command
// that runs it.
Table fit_table(const MemoryCell& cell, std::int64_t limit_bytes);

// What --largest varies.
enum class Growth : std::uint8_t { kBatch, kContext };
inline constexpr Growth kAllGrowths[] = {Growth::kBatch, Growth::kContext};
std::string_view name_of(Growth growth);

// Rows: the step as asked for, and with changes that keep the task (flash attention, recomputation,
// both, and autocast besides), each with the largest batch, or context in steps of 64 tokens above
// 64, that fits, its peak and the command. Empty cells: not even the smallest fits.
Table largest_table(const RunSpec& step, const DeviceTraits& traits, std::int64_t limit_bytes,
                    Growth growth);

// The flags that say which step it is, where it differs from what every command takes for granted.
std::string flags_of(const RunSpec& step);
// "tracestep bench --size small … --recompute blocks": the command that times this step.
std::string command_of(const RunSpec& step);

}  // namespace tracestep
