// Sums up bytes by category and by holder; the memory tables are made from these sums.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "analysis/memory_map.h"
#include "lab/memory/run.h"

namespace tracestep {

using ByCategory = std::array<std::int64_t, kCategoryCount>;
constexpr std::size_t at(Category c) {
  return static_cast<std::size_t>(c);
}

struct CategoryTotals {
  // The bytes at the peak of the total, and the most of each category at any moment.
  ByCategory peak{}, highest{};
};

// Adds up the bytes by the program: buffers are allocated and freed at their nodes.
CategoryTotals predicted_totals(const MemoryRun& run);
// Adds up the bytes by the recorded events.
CategoryTotals measured_totals(const MemoryRun& run);

// Returns the indices of the largest buffers of the whole step; of equal ones the earliest.
std::vector<std::size_t> largest_buffers(const MemoryMap& map, std::size_t count);

// Says a category in words: "optimizer state".
std::string words_of(Category category);

// --- what holds the memory at a moment ---------------------------------------------------------

// A row of a table of holders. A row that sums up several holders has no op and no category.
struct Holder {
  std::string component;
  std::optional<std::string> op = {}, category = {};
  std::int64_t buffers = 0, bytes = 0, largest_bytes = 0;
  std::string reason = {};  // Why its first buffer is alive.
};

class Holders {
 public:
  // Adds a block's bytes to its holder. `buffer` is nullptr for a block that was not predicted.
  void add(const MappedBuffer* buffer, std::int64_t bytes);

  // Returns rows for the `most` largest holders, then one row for the others ("12 more").
  std::vector<Holder> rows(std::size_t most) const;
  std::int64_t bytes() const { return bytes_; }
  std::int64_t buffers() const { return buffers_; }

 private:
  using Key = std::tuple<std::string, std::string, Category>;
  std::map<Key, Holder> held_;
  std::int64_t bytes_ = 0, buffers_ = 0;
};

}  // namespace tracestep
