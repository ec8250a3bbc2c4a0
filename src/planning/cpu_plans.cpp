#include "planning/cpu_plans.h"

#include "base/integers.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace tracestep {
namespace {

// The most rows of a packed strip of `b`, which should stay in L1: 16 KiB with AVX2 (16 columns),
// 32 KiB with AVX-512 (32 columns). A row for bfloat16 may hold k and k + 1, so a block has twice
// as many k; a processor that does not multiply pairs takes such a block in two turns.
constexpr std::int64_t kStripK = 256;
// The most rows of a block of `a`, which may fill a 512 KiB L2: it is read in order, prefetched.
constexpr std::int64_t kBlockM = 528;
// The elements of K whose multiples put rows of bfloat16 that are read in place into a few sets of
// the second-level cache, where at most half as many rows stay.
constexpr std::int64_t kPageOfK = 4096;
// The most columns of a block of `b`. Strips are packed one by one, so only the result limits it:
// the caches should keep the result's block from one block of K to the next.
constexpr std::int64_t kBlockN = 1024;
// The widest strips, of rows and columns, of any SIMD target: packed blocks have whole strips.
constexpr std::int64_t kRowStrip = 16, kColumnStrip = 32;

// The fewest multiply-adds for several threads; one makes fewer before another has begun.
constexpr double kLeastShared = 2e5;

void choose_k(GemmPlan& plan, std::int64_t per_row) {
  const std::int64_t chunks = std::max<std::int64_t>(1, ceil_div(plan.k, kStripK * per_row));
  // Tiles of bfloat16 are 32 steps of k deep.
  const std::int64_t unit = per_row > 1 ? 32 : 8;
  plan.block_k = round_up(std::max<std::int64_t>(1, ceil_div(plan.k, chunks)), unit);
  plan.strip_k = plan.block_k / per_row;
  plan.blocks_k = std::max<std::int64_t>(1, ceil_div(plan.k, plan.block_k));
  // Few result tiles and a long K: the K range is cut as well, for machines of up to 16 cores.
  const std::int64_t tiles = plan.batch * ceil_div(plan.m, 128) * ceil_div(plan.n, 128);
  if (tiles < 16 && plan.k >= 1024) {
    plan.splits = std::clamp<std::int64_t>(std::min(plan.k / 512, 16 / tiles), 1, plan.blocks_k);
  }
}

// The most bytes of packed blocks of `a` or `b` that all threads share at a time.
constexpr std::int64_t kSharedBytes = std::int64_t{8} << 20;

// The fewest threads that share an operand which is packed once for all of them.
constexpr int kManyThreads = 4;
// The number of threads to keep busy with a cut that must follow from the shape alone.
constexpr std::int64_t kUsualThreads = 16;

// Plans, if `shares`, that threads share packed rows of `a`, in equal panels; false: they cannot.
bool choose_sharing(GemmPlan& plan, bool shares) {
  plan.shares_a = shares;
  plan.panel_blocks = plan.blocks_m;
  plan.panel_blocks_n = plan.blocks_n, plan.panel_blocks_k = plan.blocks_k;
  if (!shares) return true;
  if (plan.batch > 1 || plan.blocks_n < 2) return false;
  const std::int64_t floats = plan.blocks_k * plan.packed_chunk();
  const std::int64_t most = kSharedBytes / (floats * static_cast<std::int64_t>(sizeof(float)));
  if (most == 0) return false;
  plan.panel_blocks = ceil_div(plan.blocks_m, ceil_div(plan.blocks_m, most));
  return true;
}

// Returns the cost of a cut, in cycles of the thread with the most blocks: the micro-kernel (24
// multiply-adds each, of bfloat16 128, which lie between what processors have) and packing (2
// elements each, of bfloat16 4), of `b` with the first strip of a block, whose source nobody
// fetched. What is shared of `a` is packed once by all threads, who then wait for each other,
// and is read from beyond L2.
double cycles_of(const GemmPlan& cut, bool is_bf16, int threads) {
  constexpr double kWaiting = 1e4, kReading = 0.5;  // of packing
  const double per_cycle = is_bf16 ? 128.0 : 24.0, packed_per_cycle = is_bf16 ? 4.0 : 2.0;
  const auto bm = static_cast<double>(cut.block_m), bn = static_cast<double>(cut.block_n);
  const auto k = static_cast<double>(cut.k), splits = static_cast<double>(cut.splits);
  const double area = static_cast<double>(round_up(cut.block_m, 6)) * bn;
  const double columns = bn + static_cast<double>(kColumnStrip);
  const double packed = columns + bm * (cut.shares_a ? kReading : 1.0);
  const double job = k / splits * (area / per_cycle + packed / packed_per_cycle);
  const std::int64_t jobs = cut.jobs() / cut.blocks_m * cut.panel_blocks;  // of a panel of rows
  const auto rounds = static_cast<double>(ceil_div(jobs, threads));
  const double rows = bm * static_cast<double>(cut.panel_blocks);
  const double sharing = rows * k / packed_per_cycle / static_cast<double>(threads) + kWaiting;
  const auto panels = static_cast<double>(ceil_div(cut.blocks_m, cut.panel_blocks));
  return panels * (rounds * job + (cut.shares_a ? sharing : 0.0));
}

// Returns the number of blocks of a panel, up to `most`, such that all panels have about as many.
std::int64_t blocks_of_panel(std::int64_t blocks, std::int64_t most) {
  return ceil_div(blocks, ceil_div(blocks, std::clamp<std::int64_t>(most, 1, blocks)));
}

// Plans parts of the last blocks of a panel: strips of the narrow side, which pack nothing twice,
// or, where that is one strip, quarters of the other side.
void cut_last_blocks(GemmPlan& plan) {
  constexpr std::int64_t kQuarters = 4;
  const std::int64_t strips = ceil_div(plan.shares_a ? plan.block_n : plan.block_m, kColumnStrip);
  const bool by_columns = plan.shares_a == (strips > 1);
  (by_columns ? plan.tail_parts_n : plan.tail_parts_m) = strips > 1 ? strips : kQuarters;
}

// Plans to share the smaller operand, in blocks that are narrow where the other one is cut, so that
// each thread packs its part of the other one in its own cache. On 16 cores of a Xeon this makes
// products 1.25 times as fast as sharing both (bench/results/cpu-xeon-16-cores.md). Of a deep
// operand, part of K is shared at a time. Returns false if no block of K fits, or nobody gains.
bool choose_narrow_blocks(GemmPlan& plan, bool is_bf16) {
  // Blocks of a deep product are larger, since each reads all of K from other cores' caches.
  const bool is_deep = plan.k > 4096;
  const std::int64_t side = !is_bf16 ? 32 : is_deep ? 96 : 64, unit = is_bf16 ? 32 : 2;
  const std::int64_t least_blocks = is_bf16 && is_deep ? 32 : 40;
  constexpr std::int64_t kMostParts = 4;
  constexpr std::int64_t kFloats = kSharedBytes / static_cast<std::int64_t>(sizeof(float));
  const bool by_rows = plan.m <= plan.n;  // a is shared
  GemmPlan cut = plan;
  for (std::int64_t parts = 1; parts <= kMostParts; ++parts) {
    if (by_rows) {
      cut.block_m = round_up(ceil_div(plan.m, ceil_div(plan.m, kBlockM) * parts), unit);
      cut.block_n = round_up(ceil_div(plan.n, ceil_div(plan.n, side)), kColumnStrip);
    } else {
      cut.block_m = round_up(ceil_div(plan.m, ceil_div(plan.m, side)), unit);
      cut.block_n = round_up(ceil_div(plan.n, ceil_div(plan.n, kBlockN) * parts), kColumnStrip);
    }
    cut.blocks_m = ceil_div(plan.m, cut.block_m), cut.blocks_n = ceil_div(plan.n, cut.block_n);
    const std::int64_t blocks = cut.blocks_m * cut.blocks_n * cut.splits;
    const std::int64_t rounds = ceil_div(blocks, kUsualThreads) * kUsualThreads;
    if (blocks >= least_blocks && rounds * 3 <= blocks * 4) break;  // few threads wait for others
  }
  if ((by_rows ? cut.blocks_n : cut.blocks_m) < 2) return false;  // nobody else would read it
  cut.shares_a = by_rows, cut.shares_b = !by_rows;
  cut.panel_blocks = cut.blocks_m, cut.panel_blocks_n = cut.blocks_n;
  cut.panel_blocks_k = cut.blocks_k;
  // What a block shares of one block of K, and of all of K.
  const std::int64_t floats = by_rows ? cut.packed_chunk() : cut.block_k * cut.block_n;
  const std::int64_t deep = cut.blocks_k * floats;
  if (deep <= kFloats && by_rows) {
    cut.panel_blocks = blocks_of_panel(cut.blocks_m, kFloats / deep);
  } else if (deep <= kFloats) {
    cut.panel_blocks_n = blocks_of_panel(cut.blocks_n, kFloats / deep);
  } else {  // All blocks, over a part of K; parts that are summed apart are not cut again.
    const std::int64_t all = floats * (by_rows ? cut.blocks_m : cut.blocks_n);
    if (cut.splits > 1 || all > kFloats) return false;
    cut.panel_blocks_k = blocks_of_panel(cut.blocks_k, kFloats / all);
    // Sums that are kept between parts of K take no more than twice as much.
    std::int64_t& others = by_rows ? cut.panel_blocks_n : cut.panel_blocks;
    const std::int64_t shared = by_rows ? cut.blocks_m : cut.blocks_n;
    others = blocks_of_panel(others, 2 * kFloats / (shared * cut.block_m * cut.block_n));
  }
  cut_last_blocks(cut);
  plan = cut;
  return true;
}

void choose_blocks(GemmPlan& plan, bool is_bf16, int threads) {
  const bool is_large = plan.batch == 1 && plan.m >= 64 && plan.n >= 64 && plan.k >= 64;
  if (threads >= kManyThreads && is_large && choose_narrow_blocks(plan, is_bf16)) return;
  double best = std::numeric_limits<double>::max();
  const std::int64_t most_m = is_bf16 && plan.k % kPageOfK == 0 ? kBlockM / 2 : kBlockM;
  const std::int64_t least_m = std::max<std::int64_t>(1, ceil_div(plan.m, most_m));
  const std::int64_t least_n = std::max<std::int64_t>(1, ceil_div(plan.n, kBlockN));
  const std::int64_t rows = is_bf16 && plan.m > 32 ? 32 : 2;  // blocks of whole tiles
  GemmPlan cut = plan;
  // Several numbers of parts come to the same block, which is looked at once.
  for (std::int64_t pm = least_m, bm_before = 0; pm <= 4 * least_m + 4; ++pm) {
    cut.block_m = round_up(ceil_div(plan.m, pm), rows);
    if (std::exchange(bm_before, cut.block_m) == cut.block_m) continue;
    for (std::int64_t pn = least_n, bn_before = 0; pn <= 4 * least_n + 4; ++pn) {
      cut.block_n = round_up(ceil_div(plan.n, pn), kColumnStrip);
      if (std::exchange(bn_before, cut.block_n) == cut.block_n) continue;
      cut.blocks_m = ceil_div(plan.m, cut.block_m), cut.blocks_n = ceil_div(plan.n, cut.block_n);
      for (const bool shares : {false, true}) {
        if (!choose_sharing(cut, shares)) continue;
        const double cost = cycles_of(cut, is_bf16, threads);
        if (cost >= best * 0.999) continue;
        best = cost;
        plan = cut;
      }
    }
  }
}

}  // namespace

std::int64_t GemmPlan::packed_a() const {
  return is_vector ? 0 : (round_up(block_m, kRowStrip) + kRowStrip) * strip_k;
}
std::int64_t GemmPlan::packed_chunk() const {
  return is_vector ? 0 : packed_a() * (block_k / strip_k);
}
std::int64_t GemmPlan::packed_b() const {
  return is_vector ? 0 : kColumnStrip * strip_k;
}

std::int64_t GemmPlan::shared_a_floats() const {
  return shares_a ? panel_blocks * panel_blocks_k * packed_chunk() : 0;
}
std::int64_t GemmPlan::shared_b_floats() const {
  return shares_b ? panel_blocks_n * block_n * panel_blocks_k * block_k : 0;
}

std::int64_t GemmPlan::workspace_bytes(int threads) const {
  if (batch * m * n == 0 || k == 0) return 0;
  const std::int64_t floats =
      is_vector ? batch * k : floats_per_thread() * threads + shared_floats() + partials();
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
  choose_blocks(plan, operands == DType::kBF16, is_shared ? std::max(1, threads) : 1);
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

// The floats for the gaps between a thread's tiles, since each tile begins at an aligned offset.
constexpr std::int64_t kSlack = 16 * AttentionPlan::kAligned;

AttentionPlan plan_attention(const AttentionSizes& sizes) {
  AttentionPlan plan{.sizes = sizes};
  plan.padded_width = round_up(sizes.width, AttentionPlan::kWidestStrip);
  // Keys, their gradients and both panels of scores should stay in an L2 of 512 KiB.
  plan.backward_keys = sizes.width <= 64 ? AttentionPlan::kMostBackwardKeys : 96;
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
