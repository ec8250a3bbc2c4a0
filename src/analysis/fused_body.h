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
// The most rows that one block sums, one after the other.
inline constexpr std::int64_t kMostRowsPerBlock = 32;

struct FusedBody {
  Program program;         // the body, with ops on rows decomposed and dead code removed
  std::int64_t count = 0;  // points of the walk
  std::int64_t width = 0;  // points in a row, when rows are reduced; 0: nothing is reduced
  // When columns are summed too: rows per block, with one partial sum per column and block; else 0.
  std::int64_t rows_per_block = 0;
  bool has_pairs = false;  // points 2j and 2j+1 must be computed together
  // Where pairs are half a row apart (rotation by halves), the columns between the two; else 0. The
  // walk goes by pairs then: points 2j and 2j+1 of `2 half` points are the columns j and j + half.
  // Places are those of columns all the same; only what reads and writes memory tells them apart.
  std::int64_t half = 0;

  // By value, then by dimension: distance in points between neighbouring elements; 0 along
  // dimensions of size 1. Points that differ only in a dimension a value lacks share its element.
  std::vector<std::optional<Strides>> places;
  // By leaf: whether it has one element per pair of points, as a rotation's angles have; the last
  // dimension of such a leaf has place 2.
  std::vector<bool> per_pair;
  // The point distances at which dimensions of leaves and outputs begin and end, 1 and `count`
  // included; each divides the next.
  std::vector<std::int64_t> cuts;

  const Strides& place(ValueId id) const { return *places[static_cast<std::size_t>(id)]; }
  // True if the value has one element per row (a statistic).
  bool is_per_row(ValueId id) const;
  // True if the value is a sum over the rows of a block, or a view of one.
  bool is_per_block(ValueId id) const;
  // True if rows are reduced, each for itself: a kernel then has all of a row at once.
  bool reduces_rows() const;
  // Elements between points that are `cut` apart, in a value with `strides` in memory.
  std::int64_t step(ValueId id, const Strides& strides, std::int64_t cut) const;
};

// nullopt: the body has ops that cannot be fused, dtypes other than float32, bfloat16, float16 and
// bool, or values that do not fit into a single walk.
std::optional<FusedBody> find_walk(const Program& body);

// Where each value of a fused body lies in the walk over its points. Sets `count`, `width`,
// `rows_per_block`, `has_pairs` and `places` from the body's program: the values that decide the
// order of the walk come first (rows that are reduced, pairs, then the largest result), and every
// op and view passes places on between its operands and results. False: two ops want different
// orders, or a value has no place in a single walk. Constants get no place unless a reader gives
// them one.
bool place_values(FusedBody& body);

// True if the node fills its result with one value, which a fused kernel has as a literal.
bool is_constant(const Node& node);

}  // namespace tracestep
