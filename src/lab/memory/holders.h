// What holds the memory at a moment: buffers added up by component, op and category.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "analysis/memory_map.h"

namespace tracestep {

// One row; a sum of several holders has no op and no category.
struct Holder {
  std::string component;
  std::optional<std::string> op = {}, category = {};
  std::int64_t buffers = 0, bytes = 0, largest_bytes = 0;
  std::string reason = {};  // why its first buffer is alive
};

class Holders {
 public:
  // `buffer` is nullptr for a block that was not predicted.
  void add(const MappedBuffer* buffer, std::int64_t bytes);

  // The `most` largest, then one row for the others ("12 more").
  std::vector<Holder> rows(std::size_t most) const;
  std::int64_t bytes() const { return bytes_; }
  std::int64_t buffers() const { return buffers_; }

 private:
  using Key = std::tuple<std::string, std::string, Category>;
  std::map<Key, Holder> held_;
  std::int64_t bytes_ = 0, buffers_ = 0;
};

}  // namespace tracestep
