// Finds how the body of a fused node can be computed in one walk, if it can: one pass over an index
// space of "points", in which every element of every value has a place. The pass `fuse` makes only
// such bodies, and code generation starts from the FusedBody found here.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "ir/program.h"

namespace tracestep {

// The widest row that a kernel keeps in registers.
inline constexpr std::int64_t kMostFusedWidth = 8192;
// The most rows over which one block sums the columns.
inline constexpr std::int64_t kMostRowsPerBlock = 32;

struct FusedBody {
  Program program;         // the body, with ops on rows decomposed and dead code removed
  std::int64_t count = 0;  // The number of points in the walk.
  // The number of points in a row if rows are reduced; 0: nothing is reduced.
  std::int64_t width = 0;
  // If columns are summed too: the rows of a block, which makes one partial sum for each column;
  // else 0.
  std::int64_t rows_per_block = 0;
  bool has_pairs = false;  // True: points 2j and 2j+1 must be computed together.
  // If the elements of a pair are half a row apart (rotation by halves): that distance in columns;
  // else 0. The walk then goes by pairs: points 2j and 2j+1 of `2 half` points are the columns j
  // and j + half. `places` still count columns; only code that reads and writes memory makes the
  // difference.
  std::int64_t half = 0;

  // For each value and dimension: the distance in points between neighbouring elements; 0 along
  // dimensions of size 1. Points that differ only in a dimension which a value lacks share its
  // element.
  std::vector<std::optional<Strides>> places;
  // For each leaf, whether it has one element per pair of points, as the angles of a rotation have;
  // the last dimension of such a leaf has distance 2.
  std::vector<bool> per_pair;
  // The distances in points at which dimensions of leaves and outputs begin and end, including 1
  // and `count`; each divides the next.
  std::vector<std::int64_t> cuts;

  const Strides& place(ValueId id) const { return *places[static_cast<std::size_t>(id)]; }
  // True if the value has one element per row (a statistic).
  bool is_per_row(ValueId id) const;
  // True if the value is a sum over the rows of a block, or a view of one.
  bool is_per_block(ValueId id) const;
  // True if each row is reduced separately, so that a kernel needs a whole row at once.
  bool reduces_rows() const;
  // Returns the distance in elements between points that are `cut` apart, for a value that has
  // `strides` in memory.
  std::int64_t step(ValueId id, const Strides& strides, std::int64_t cut) const;
};

// Finds the walk of a body. nullopt: it has ops that cannot be fused, dtypes other than float32,
// bfloat16, float16 and bool, or values that do not fit into a single walk.
std::optional<FusedBody> find_walk(const Program& body);

// Finds the place of each value in the walk. Sets `count`, `width`, `rows_per_block`, `has_pairs`
// and `places` from the body's program. Values that decide the order of the walk come first (rows
// that are reduced, pairs, then the largest result); then every op and view passes places on
// between its operands and results. Returns false if two ops need different orders, or a value has
// no place in a single walk. Constants only get a place from a reader.
bool place_values(FusedBody& body);

// True if the node fills its result with one value, which a fused kernel contains as a literal.
bool is_constant(const Node& node);

}  // namespace tracestep
