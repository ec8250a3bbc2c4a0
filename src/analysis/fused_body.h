// Whether, and how, the body of a fused node can be computed in one walk: an index space in which
// every value has a place. The pass `fuse` makes no other bodies, and compilers of kernels start
// from what is found here.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "ir/program.h"

namespace tracestep {

// The widest row that a kernel keeps in registers.
inline constexpr std::int64_t kMostFusedWidth = 8192;
// Rows that a block adds up at most, one after the other.
inline constexpr std::int64_t kMostRowsPerBlock = 32;

struct FusedBody {
  Program program;         // the body, with ops on rows in their parts and nothing unread
  std::int64_t count = 0;  // points of the walk
  std::int64_t width = 0;  // points of a row where rows are reduced; 0: nothing is reduced
  // Where rows are also added up: so many neighbours at a time, a sum for each column of a block.
  std::int64_t rows_per_block = 0;
  bool has_pairs = false;  // points 2j and 2j+1 must be computed together

  // By value, by dimension: points of the walk between neighbours; 0 along dimensions of size 1.
  // A point that differs only in what a value has no dimension for reads the same element.
  std::vector<std::optional<Strides>> places;
  // By leaf: one element per pair, as the angles of a rotation; its last dimension has place 2.
  std::vector<bool> per_pair;
  // Where the dimensions of leaves and outputs begin and end, 1 and `count` included; each divides
  // the next.
  std::vector<std::int64_t> cuts;

  const Strides& place(ValueId id) const { return *places[static_cast<std::size_t>(id)]; }
  // One element per row: a statistic.
  bool is_per_row(ValueId id) const;
  // A sum over the rows of a block, or a view of one.
  bool is_per_block(ValueId id) const;
  // Elements from one point at a cut to the next in a value that lies in memory with `strides`.
  std::int64_t step(ValueId id, const Strides& strides, std::int64_t cut) const;
};

// nullopt: the body has ops that only kernels of their own compute, dtypes other than float32,
// bfloat16, float16 and bool, or values that no single walk reaches.
std::optional<FusedBody> find_walk(const Program& body);

}  // namespace tracestep
