#include "planning/cpu_plans.h"

#include "base/integers.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace tracestep {
namespace {

// A strip of packed b of this many rows should stay in L1: 16 KiB with AVX2 (16 columns),
// 32 KiB with AVX-512 (32 columns). Of bfloat16 a row may hold k and k + 1, and a block of K has
// twice as many; a processor that does not multiply pairs takes such a block in two turns.
constexpr std::int64_t kStripK = 256;
// A packed block of a may fill a 512 KiB L2: it is read sequentially, so prefetching hides misses.
constexpr std::int64_t kBlockM = 528;
// b is packed strip by strip, so only the scratch of a low-precision block limits its width.
constexpr std::int64_t kBlockN = 1024;
// The widest strips of any SIMD target: packed blocks are padded to whole strips.
constexpr std::int64_t kRowStrip = 16, kColumnStrip = 32;

// Multiply-adds that one thread makes before another has begun, some microseconds.
constexpr double kLeastShared = 2e5;

void choose_k(GemmPlan& plan, std::int64_t per_row) {
  const std::int64_t chunks = std::max<std::int64_t>(1, ceil_div(plan.k, kStripK * per_row));
  plan.block_k = round_up(std::max<std::int64_t>(1, ceil_div(plan.k, chunks)), 8 * per_row);
  plan.strip_k = plan.block_k / per_row;
  plan.blocks_k = std::max<std::int64_t>(1, ceil_div(plan.k, plan.block_k));
  // Few result tiles and a long K: the K range is cut as well, for machines of up to 16 cores.
  const std::int64_t tiles = plan.batch * ceil_div(plan.m, 128) * ceil_div(plan.n, 128);
  if (tiles < 16 && plan.k >= 1024) {
    plan.splits = std::clamp<std::int64_t>(std::min(plan.k / 512, 16 / tiles), 1, plan.blocks_k);
  }
}

// The cut with the shortest makespan: cycles of the micro-kernel (16 multiply-adds each) plus
// packing (2 elements each), for the thread with the most blocks.
void choose_blocks(GemmPlan& plan, int threads) {
  double best = std::numeric_limits<double>::max();
  const std::int64_t least_m = std::max<std::int64_t>(1, ceil_div(plan.m, kBlockM));
  const std::int64_t least_n = std::max<std::int64_t>(1, ceil_div(plan.n, kBlockN));
  // Several numbers of parts come to the same block, which is looked at once.
  for (std::int64_t pm = least_m, bm_before = 0; pm <= 4 * least_m + 4; ++pm) {
    const std::int64_t bm = round_up(ceil_div(plan.m, pm), 2);
    if (std::exchange(bm_before, bm) == bm) continue;
    for (std::int64_t pn = least_n, bn_before = 0; pn <= 4 * least_n + 4; ++pn) {
      const std::int64_t bn = round_up(ceil_div(plan.n, pn), kColumnStrip);
      if (std::exchange(bn_before, bn) == bn) continue;
      const std::int64_t blocks_m = ceil_div(plan.m, bm), blocks_n = ceil_div(plan.n, bn);
      const std::int64_t jobs = plan.batch * blocks_m * blocks_n * plan.splits;
      const auto area = static_cast<double>(round_up(bm, 6)) * static_cast<double>(bn);
      const double cost = static_cast<double>(ceil_div(jobs, threads)) *
                          (area / 16.0 + static_cast<double>(bm + bn) / 2.0);
      if (cost >= best * 0.999) continue;
      best = cost;
      plan.block_m = bm, plan.block_n = bn;
      plan.blocks_m = blocks_m, plan.blocks_n = blocks_n;
    }
  }
}

}  // namespace

std::int64_t GemmPlan::packed_a() const {
  return is_vector ? 0 : (round_up(block_m, kRowStrip) + kRowStrip) * strip_k;
}
std::int64_t GemmPlan::packed_b() const {
  return is_vector ? 0 : kColumnStrip * strip_k;
}

std::int64_t GemmPlan::workspace_bytes(int threads) const {
  if (batch * m * n == 0 || k == 0) return 0;
  const std::int64_t floats = is_vector ? batch * k : floats_per_thread() * threads + partials();
  return floats * static_cast<std::int64_t>(sizeof(float));
}

GemmPlan plan_gemm(std::int64_t batch, std::int64_t m, std::int64_t n, std::int64_t k,
                   DType operands, DType result, int threads, bool adds) {
  GemmPlan plan{.batch = batch, .m = m, .n = n, .k = k};
  plan.is_vector = m == 1 || n == 1;
  if (batch * m * n == 0 || k == 0 || plan.is_vector) return plan;
  choose_k(plan, operands == DType::kBF16 ? 2 : 1);
  const bool is_shared =
      static_cast<double>(batch * m) * static_cast<double>(n * k) >= kLeastShared;
  choose_blocks(plan, is_shared ? std::max(1, threads) : 1);
  // Sums over the blocks of K are collected in a block of float32: a result in low precision would
  // round them at every block, and a tensor is added to only once, at the end.
  const bool is_kept_apart = (is_low_precision(result) || adds) && plan.splits == 1;
  plan.result_block = is_kept_apart ? plan.block_m * plan.block_n : 0;
  return plan;
}

std::int64_t reduction_parts(std::int64_t results, std::int64_t reduced) {
  if (results == 0 || results >= 16384) return 1;
  // At most 64 jobs of 1024 results each: every part costs another pass over the results.
  const std::int64_t most = std::clamp<std::int64_t>(65536 / results, 1, 64);
  return std::clamp<std::int64_t>(std::min(reduced / 16, results * reduced / 65536), 1, most);
}

std::int64_t reduction_workspace_bytes(std::int64_t results, std::int64_t reduced) {
  const std::int64_t parts = reduction_parts(results, reduced);
  return parts > 1 ? parts * results * static_cast<std::int64_t>(sizeof(double)) : 0;
}

// Room for the gaps between a thread's tiles, each of which begins at an aligned offset.
constexpr std::int64_t kSlack = 16 * AttentionPlan::kAligned;

AttentionPlan plan_attention(const AttentionSizes& sizes) {
  AttentionPlan plan{.sizes = sizes};
  plan.padded_width = round_up(sizes.width, AttentionPlan::kWidestStrip);
  // Keys, their gradients and both panels of scores should stay in an L2 of 512 KiB.
  plan.backward_keys = sizes.width <= 64 ? 192 : 96;
  return plan;
}

std::int64_t AttentionPlan::forward_floats_per_thread() const {
  const std::int64_t tall = kKeys + kTallestStrip;
  const std::int64_t keys_and_values = tall * (sizes.width + padded_width);
  const std::int64_t queries_and_results = kQueries * (sizes.width + padded_width);
  constexpr std::int64_t kStatistics = 3 * kQueries;
  return round_up(keys_and_values + queries_and_results + tall * kQueries + kStatistics + kSlack,
                  kAligned);
}

std::int64_t AttentionPlan::forward_bytes(int threads) const {
  if (sizes.is_empty()) return 0;
  return forward_floats_per_thread() * threads * static_cast<std::int64_t>(sizeof(float));
}

std::int64_t AttentionPlan::row_floats() const {
  return round_up(sizes.heads * sizes.queries, kAligned);
}
std::int64_t AttentionPlan::dq_floats() const {
  return is_low_precision(sizes.dtype)
             ? round_up(sizes.heads * sizes.queries * sizes.width, kAligned)
             : 0;
}
std::int64_t AttentionPlan::turn_counters() const {
  return round_up(sizes.heads * ceil_div(sizes.queries, kLeastPanel), kAligned);
}

std::int64_t AttentionPlan::backward_floats_per_thread() const {
  const std::int64_t tall = backward_keys + kTallestStrip;
  const std::int64_t keys = tall * (2 * sizes.width + 3 * padded_width);
  const std::int64_t queries = kQueries * 2 * (sizes.width + padded_width);
  return round_up(keys + queries + 2 * tall * kQueries + 3 * kQueries + kSlack, kAligned);
}

std::int64_t AttentionPlan::backward_bytes(int threads) const {
  if (sizes.is_empty()) return 0;
  const std::int64_t floats =
      2 * row_floats() + dq_floats() + turn_counters() + backward_floats_per_thread() * threads;
  return floats * static_cast<std::int64_t>(sizeof(float));
}

std::int64_t rms_norm_rows_per_block(std::int64_t rows) {
  return std::max<std::int64_t>(16, ceil_div(rows, 64));
}

}  // namespace tracestep
