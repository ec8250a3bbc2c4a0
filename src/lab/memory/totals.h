// Bytes per category, from which the memory tables are computed, and small helpers for them.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "lab/memory/run.h"

namespace tracestep {

using ByCategory = std::array<std::int64_t, kCategoryCount>;
constexpr std::size_t at(Category c) {
  return static_cast<std::size_t>(c);
}

struct CategoryTotals {
  ByCategory peak{}, highest{};  // at the peak of all; the most of each at any moment
};

// By the program: buffers are allocated and freed at their nodes.
CategoryTotals predicted_totals(const MemoryRun& run);
// By the recorded events.
CategoryTotals measured_totals(const MemoryRun& run);

// Indices of the largest buffers of the whole step; of equal ones the earliest.
std::vector<std::size_t> largest_buffers(const MemoryMap& map, std::size_t count);

// "optimizer state"
std::string words_of(Category category);

}  // namespace tracestep
