// How a fused kernel divides its walk: into parts along which every operand has a single step, and
// into the points that each thread, block and grid compute.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "codegen/fused_text.h"

namespace tracestep {

// A range of the walk along which every operand and result has a single step.
struct FusedPart {
  std::int64_t cut, size;
};

// How a kernel reads an operand or writes a result. Its step along a part is in elements per point,
// divided by `divisor`.
struct Access {
  ValueId value;
  std::string name;  // The name of the kernel's parameter.
  DType dtype;
  std::vector<std::int64_t> steps;
  int divisor = 1;  // 2: it has one element per pair of points.
  int alignment_bytes = 16;
  // The distance in columns between the elements of a pair; 0: they are neighbours.
  std::int64_t half = 0;

  bool repeats() const;
  // True if n points along the first part form a pack of n / divisor adjacent, aligned elements; if
  // pairs are half a row apart, two packs of n / 2.
  bool has_packs(std::int64_t n) const;
};

struct FusedLayout {
  std::vector<Access> accesses;   // operands, then results
  std::size_t operands = 0;       // How many of `accesses` are operands; they come first.
  std::vector<std::size_t> read;  // For each operand, the leaf that it reads.
  std::vector<FusedPart> parts;
  std::int64_t pack = 1;        // How many adjacent points a thread computes together.
  std::int64_t held_packs = 1;  // How many packs of a row a thread holds.
  std::int64_t lanes = 1;       // The threads of a row; if nothing is reduced, those of a block.
  // How many rows a block computes side by side, with `lanes` threads each.
  std::int64_t rows_per_block = 1;
  // Into how many parts the columns are divided, each with blocks of its own; only if no row is
  // reduced.
  std::int64_t tiles = 1;
  std::int64_t blocks = 1;

  std::int64_t held() const { return held_packs * pack; }  // The points that a thread holds.
  std::int64_t threads() const { return lanes * rows_per_block; }  // The threads of a block.
  bool is_output(const Access& a) const {
    return &a - accesses.data() >= static_cast<std::ptrdiff_t>(operands);
  }
  // Returns the first part outside of a row, or of a block of rows, with this many points.
  std::size_t first_part_behind(std::int64_t points) const;
  // Returns the largest offset in any operand or result, in elements.
  std::int64_t largest_offset() const;
};

// The most points that a block which sums columns holds if another block shares its multiprocessor,
// whose registers they then divide.
inline constexpr std::int64_t kMostSumPoints = 4096;

// Lays out a kernel. `leaves` and `outputs` are in the order of the body's.
FusedLayout lay_out(const FusedBody& body, std::span<const FusedOperand> leaves,
                    std::span<const FusedOperand> outputs);

}  // namespace tracestep
