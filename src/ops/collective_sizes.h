// How collectives divide a tensor among the ranks of a group: rank r owns the r-th part of the
// elements in row-major order. Parts are equally long; the last ones are padded with zeros.
#pragma once

#include <algorithm>
#include <cstdint>

#include "ir/op_def.h"
#include "ops/rank_group.h"

namespace tracestep {

// Returns the number of elements in the part of one rank, padding included.
constexpr std::int64_t part_count(std::int64_t count, std::int64_t ranks) {
  return (count + ranks - 1) / ranks;
}

// The elements of a tensor in one rank's part; fewer than part_count() if the part is padded.
struct OwnPart {
  std::int64_t first = 0, count = 0;
};
constexpr OwnPart own_part_of(std::int64_t count, std::int64_t ranks, std::int64_t rank) {
  const std::int64_t each = part_count(count, ranks);
  const std::int64_t first = std::min(count, each * rank);
  return {first, std::min(each, count - first)};
}

// Returns the group of ranks in a collective's attributes.
RankGroup group_of(const Attrs& attrs);
// Adds the attributes of the group to `attrs`.
Attrs in_group(const RankGroup& group, Attrs attrs = {});

// Returns the bytes that rank `rank` of the run receives in a collective if each part's owner sums
// it; no algorithm needs fewer. 0 for other ops.
std::int64_t received_bytes(const OpCall& call, std::int64_t rank);

}  // namespace tracestep
