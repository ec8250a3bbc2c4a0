// How attention's kernels on a GPU divide their work: the families of kernels, the widths that
// these are compiled for, and what lies where in the workspace. The kernels follow this, and bytes
// are predicted from it. Only functions of numbers, so that the C interface needs nothing more.
#pragma once

#include <cstdint>
#include <initializer_list>

#include "base/integers.h"

namespace tracestep {

// kHopper (sm_90a): 16-bit operands of tuned widths whose rows begin at multiples of 16 bytes, or
// of a width at which rows cannot, which are copied. kPortable (sm_80 and later): any other call.
enum class AttentionFamily : std::uint8_t { kAuto, kPortable, kHopper };

// Columns of 16 bits in rows of whole 16 bytes, without which the copy engine reads nothing. Where
// these are more than `width`, the Hopper kernels run on copies of such rows.
constexpr std::int64_t hopper_row_width(std::int64_t width) {
  return round_up(width, 8);
}

// The smallest width that Hopper's kernels are compiled for and that holds this one; 0: there is
// none. The copy engine fills the columns past a row's end with zeros. Up to 16 the portable
// kernels are faster.
inline int hopper_attention_width(std::int64_t width) {
  if (width <= 16) return 0;
  constexpr int kWidths[] = {64, 80, 96, 128, 192, 256};
  for (const int padded : kWidths) {
    if (width <= padded) return padded;
  }
  return 0;
}

// The smallest width that the portable kernels are compiled for and that holds this one, up to 256.
inline int portable_attention_width(std::int64_t width) {
  constexpr int kWidths[] = {16, 32, 64, 80, 96, 128};
  for (const int padded : kWidths) {
    if (width <= padded) return padded;
  }
  return 256;
}

// Backward of wider heads does not add up dq across blocks, and needs no room for the sums.
constexpr int kWidestSummedHead = 128;

struct AttentionExtent {
  std::int64_t heads = 0, key_heads = 0;  // of q, and of k and v, of the whole batch
  std::int64_t queries = 0, keys = 0, width = 0;
  bool is_float32 = false;
  int parts = 2;              // float16 ones of a float32 operand
  bool deterministic = true;  // Hopper, backward: additions to dq take turns
};

// Offsets in bytes, multiples of 256; what a call does not need takes no room.
struct AttentionWorkspace {
  std::int64_t padded_queries = 0;  // whole blocks of 128
  // Backward, of every padded query: float32; the latter two for float32 operands.
  std::int64_t lse2 = 0, delta = 0, exponent = 0, correction = 0;
  // float32 operands: the range of each head of keys, then q, k, v and, backward, dO in parts.
  std::int64_t ranges = 0, split[4] = {};
  // Hopper. Forward: the counter that hands out tiles. Backward: float32 sums of dq, [heads, padded
  // queries, compiled width], and counters for the order of additions; not of wide heads.
  std::int64_t tiles = 0, dq_sums = 0, turns = 0;
  // Hopper, of rows that are copied: q, k, v, o (then dq) and, backward, dO, dk, dv.
  std::int64_t copies[7] = {};
  std::int64_t bytes = 0;
};

inline AttentionWorkspace attention_workspace(const AttentionExtent& x, AttentionFamily family,
                                              bool is_backward) {
  constexpr std::int64_t kRows = 128, kFloat = 4, kHalf = 2, kCounter = 4, kRange = 32;
  const bool is_hopper = family == AttentionFamily::kHopper && !x.is_float32;
  AttentionWorkspace out;
  const auto take = [&](std::int64_t bytes) {
    const std::int64_t begin = out.bytes;
    out.bytes += round_up(bytes, 256);
    return begin;
  };
  out.padded_queries = round_up(x.queries, kRows);
  const std::int64_t rows = x.heads * out.padded_queries;
  if (is_backward) {
    out.lse2 = take(rows * kFloat);
    out.delta = take(rows * kFloat);
  } else if (is_hopper) {
    out.tiles = take(kCounter);
  }
  if (is_backward && is_hopper && x.width <= kWidestSummedHead) {
    out.dq_sums = take(rows * hopper_attention_width(x.width) * kFloat);
    out.turns = take(x.deterministic ? rows / 64 * kCounter : 0);
  }
  if (is_hopper && hopper_row_width(x.width) != x.width) {
    const std::int64_t row = hopper_row_width(x.width) * kHalf;
    const std::int64_t of_queries = x.heads * x.queries * row, of_keys = x.key_heads * x.keys * row;
    const std::int64_t all[] = {of_queries, of_keys, of_keys, of_queries,
                                of_queries, of_keys, of_keys};
    for (int i = 0; i < (is_backward ? 7 : 4); ++i) out.copies[i] = take(all[i]);
  }
  if (!x.is_float32) return out;
  if (is_backward) {
    out.exponent = take(rows * kFloat);
    out.correction = take(rows * kFloat);
  }
  out.ranges = take(x.key_heads * kRange);
  const std::int64_t row = std::int64_t{portable_attention_width(x.width)} * x.parts * kHalf;
  const std::int64_t of_queries = x.heads * x.queries * row, of_keys = x.key_heads * x.keys * row;
  const std::int64_t all[] = {of_queries, of_keys, of_keys, is_backward ? of_queries : 0};
  for (int i = 0; i < 4; ++i) out.split[i] = take(all[i]);
  return out;
}

}  // namespace tracestep
