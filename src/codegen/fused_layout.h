// How a fused kernel divides its walk: the parts along which operands have a single step, and the
// points that each thread, block and grid take.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "codegen/fused_text.h"

namespace tracestep {

// A range of the walk along which every operand and result has a single step.
struct Part {
  std::int64_t cut, size;
};

// An operand or a result. Its step along a part is in elements per point, divided by `divisor`.
struct Access {
  ValueId value;
  std::string name;  // of the parameter
  DType dtype;
  std::vector<std::int64_t> steps;
  int divisor = 1;  // 2: one element per pair
  int alignment_bytes = 16;
  std::int64_t half = 0;  // columns between the elements of a pair; 0: they are neighbours

  bool repeats() const;
  // True if n points along the first part are a pack of n / divisor adjacent, aligned elements;
  // where pairs are halves of a row, two packs of n / 2.
  bool has_packs(std::int64_t n) const;
};

struct FusedLayout {
  std::vector<Access> accesses;   // operands, then results
  std::size_t operands = 0;       // so many of `accesses` are operands
  std::vector<std::size_t> read;  // the leaves that are read, by operand
  std::vector<Part> parts;
  std::int64_t pack = 1;            // adjacent points that a thread takes together
  std::int64_t held_packs = 1;      // of a row, per thread
  std::int64_t lanes = 1;           // threads of a row; where nothing is reduced, of a block
  std::int64_t rows_per_block = 1;  // rows that a block holds side by side, `lanes` threads each
  std::int64_t tiles = 1;  // of the columns, each with blocks of its own: where no row is reduced
  std::int64_t blocks = 1;

  std::int64_t held() const { return held_packs * pack; }          // points of a thread
  std::int64_t threads() const { return lanes * rows_per_block; }  // of a block
  bool is_output(const Access& a) const {
    return &a - accesses.data() >= static_cast<std::ptrdiff_t>(operands);
  }
  // The first part outside a row, or a block of rows, of `points` points.
  std::size_t first_part_behind(std::int64_t points) const;
  // The largest offset in any operand or result, in elements.
  std::int64_t largest_offset() const;
};

// A block that sums columns holds at most so many points where it has company: two blocks share a
// multiprocessor's registers then.
inline constexpr std::int64_t kMostSumPoints = 4096;

// `leaves` and `outputs` are in the order of the body's leaves and outputs.
FusedLayout lay_out(const FusedBody& body, std::span<const FusedOperand> leaves,
                    std::span<const FusedOperand> outputs);

}  // namespace tracestep
