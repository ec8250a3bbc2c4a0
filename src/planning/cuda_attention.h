// How attention's kernels on a GPU divide their work: the families of kernels, the widths that
// these are compiled for, and what lies where in the workspace. The kernels follow this, and bytes
// are predicted from it. Only functions of numbers, so that the C interface needs nothing more.
#pragma once

#include <cstdint>
#include <initializer_list>

#include "base/integers.h"

namespace tracestep {

// The kernels of a call. kHopper (sm_90a): 16-bit operands of tuned widths whose rows begin at
// multiples of 16 bytes, or are copied as their width rules that out. kPortable (sm_80 on): others.
enum class AttentionFamily : std::uint8_t { kAuto, kPortable, kHopper };

// Returns the number of 16-bit columns in rows rounded up to whole 16 bytes, which the copy engine
// needs to read them. If it is more than `width`, the Hopper kernels run on copies with such rows.
constexpr std::int64_t hopper_row_width(std::int64_t width) {
  return round_up(width, 8);
}

// Returns the smallest width for which Hopper's kernels are compiled and that is at least
// `width`; 0: there is none. The copy engine fills the columns beyond a row's end with zeros. Up
// to a width of 16, the portable kernels are faster.
inline int hopper_attention_width(std::int64_t width) {
  if (width <= 16) return 0;
  constexpr int kWidths[] = {64, 80, 96, 128, 192, 256};
  for (const int padded : kWidths) {
    if (width <= padded) return padded;
  }
  return 0;
}

// Returns the smallest width, up to 256, for which the portable kernels are compiled and that is
// at least `width`.
inline int portable_attention_width(std::int64_t width) {
  constexpr int kWidths[] = {16, 32, 64, 80, 96, 128};
  for (const int padded : kWidths) {
    if (width <= padded) return padded;
  }
  return 256;
}

// The widest head for which backward adds up dq across blocks, which needs room for the sums.
constexpr int kWidestSummedHead = 128;

struct AttentionExtent {
  // The heads of q, and those of k and v, over the whole batch.
  std::int64_t heads = 0, key_heads = 0;
  std::int64_t queries = 0, keys = 0, width = 0;
  bool is_float32 = false;
  int parts = 2;  // The number of float16 parts of a float32 operand.
  // True: in backward on Hopper, additions to dq happen in a fixed order.
  bool deterministic = true;
};

// The layout of a call's workspace: offsets in bytes, multiples of 256; unneeded parts have size 0.
struct AttentionWorkspace {
  std::int64_t padded_queries = 0;  // The number of queries, rounded up to whole blocks of 128.
  // Backward: float32 values of every padded query; the latter two only for float32 operands.
  std::int64_t lse2 = 0, delta = 0, exponent = 0, correction = 0;
  // For float32 operands: the range of each head of keys, then the parts of q, k, v and, in
  // backward, dO.
  std::int64_t ranges = 0, split[4] = {};
  // On Hopper. Forward: the counter from which blocks take tiles. Backward, except for wide heads:
  // float32 sums of dq, [heads, padded queries, compiled width], and counters for the order of
  // additions.
  std::int64_t tiles = 0, dq_sums = 0, turns = 0;
  // On Hopper, if rows are copied: copies of q, k, v, o (then dq) and, in backward, dO, dk, dv.
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
