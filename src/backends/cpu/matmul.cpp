// matmul: blocks of the result are shared by the threads, and where several of them need the same
// rows of a, or columns of b, these are packed once for all, unless tiles read rows in place; see
// planning/cpu_plans.h for the cut, gemm-inl.h and tile-products-inl.h for one block, and
// vector-products-inl.h for matrices with one row or column. matmul_add adds its third operand to a
// finished sum, so that in float32 its bits are those of a product and an `add`, and matmul_bias
// its third operand to each row of it.
#include "backends/cpu/bf16_products.h"
#include "backends/cpu/kernels.h"
#include "backends/cpu/targets.h"
#include "planning/cpu_plans.h"
#include "runtime/added_rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/matmul.cpp"
#include <hwy/foreach_target.h>

#include <hwy/highway.h>

#include "backends/cpu/tile-products-inl.h"
#include "backends/cpu/tiles-inl.h"
#include "backends/cpu/vector-products-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tracestep::cpu::HWY_NAMESPACE {
namespace {

// Returns the one stride of all batch dimensions (the op record takes nothing else).
std::int64_t batch_stride(const TensorRef& x) {
  for (int i = x.shape.rank() - 3; i >= 0; --i) {
    if (x.shape[i] != 1) return x.strides[i];
  }
  return 0;
}

Matrix as_matrix(const TensorRef& x, bool k_first) {
  const std::int64_t rows = x.strides.back(1), columns = x.strides.back(0);
  return {x.as<const std::byte>(), x.dtype, batch_stride(x), k_first ? columns : rows,
          k_first ? rows : columns};
}

// A part of the result, and the stretch of k that is being added to it.
struct Block {
  std::int64_t batch, i, j, m, n;
  std::int64_t first_k = 0, k_begin = 0, k = 0;
};

// Makes exactly one stride 1: that of a dimension with one element is free, as nothing uses it.
void normalise(Matrix& x, std::int64_t outer, std::int64_t k) {
  if (outer == 1 && x.k_stride != 1) x.outer_stride = 1;
  if (k == 1 && x.outer_stride != 1) x.k_stride = 1;
}

struct Product {
  const GemmPlan& plan;
  Bf16Products way;
  Matrix a, b;
  TensorRef y;
  const TensorRef* addend;  // dense, of y's type, all or none of it in y's storage; or nullptr
  float beta;               // the factor of the addend
  const TensorRef* bias;    // a row of y's dtype, dense; or nullptr
  float* scratch;           // floats_per_thread() for each thread
  float* shared;            // shared_floats(), where all threads read what is packed
  float* kept_sums;         // one for each block of a panel, its sums between panels of K
  float* partials;          // [splits, batch, m, n]
  // Rows of `a` are read in place, and not packed, over the elements of K before this one.
  std::int64_t in_place_k = 0;
};

// How operands are stored, and how they are packed and multiplied.
template <class T_, class Strips_>
struct Packing {
  using T = T_;
  using Strips = Strips_;
  // Returns the elements of K in a packed strip; a block of widened bfloat16 takes two strips.
  static std::int64_t turn(const GemmPlan& plan) { return plan.strip_k * Strips::kPerStep; }
};

template <class F>
void with_packing(const Product& p, const F& f) {
  if (p.a.dtype == DType::kF16) return f(Packing<F16, VectorStrips<Floats>>());
  if (p.a.dtype != DType::kBF16) return f(Packing<float, VectorStrips<Floats>>());
#if HWY_TARGET == HWY_AVX3
  switch (p.way) {
    case Bf16Products::kPairs: return f(Packing<BF16, VectorStrips<Pairs>>());
    case Bf16Products::kTiles: return f(Packing<BF16, TileStrips<ProcessorTiles>>());
    case Bf16Products::kEmulatedTiles: return f(Packing<BF16, TileStrips<EmulatedTiles>>());
    case Bf16Products::kWidened: break;
  }
#endif
  f(Packing<BF16, VectorStrips<Floats>>());
}

// Packs rows of a block, `count` from `row` on, over the block's stretch of K.
template <class P>
void pack_some(const Product& p, const Block& x, std::int64_t row, std::int64_t count,
               float* packed) {
  const auto* src = reinterpret_cast<const typename P::T*>(p.a.at(x.batch, x.i + row, x.k_begin));
  P::Strips::pack_rows_of_a(src, p.a.outer_stride, p.a.k_stride, count, x.k,
                            packed + row * P::Strips::steps(x.k));
}

// A panel, on which all threads work together: blocks of rows by blocks of columns of the result,
// over some blocks of K, in the first of which rows of `a` are read in place, and not packed.
struct PanelOf {
  std::int64_t first_m = 0, blocks_m = 0, first_n = 0, blocks_n = 0, first_k = 0, blocks_k = 0;
  std::int64_t in_place = 0;

  std::int64_t packed_k() const { return blocks_k - in_place; }
};

// Returns the index of the stretch of K that begins with k_begin among those that a panel packs.
template <class P>
std::int64_t turn_of(const Product& p, const PanelOf& panel, std::int64_t k_begin) {
  const std::int64_t per_block = p.plan.block_k / P::turn(p.plan);
  return (k_begin / p.plan.block_k - panel.first_k) * per_block +
         k_begin % p.plan.block_k / P::turn(p.plan);
}

// Returns where a block of rows is packed for all threads, over the stretch of K from k_begin on.
template <class P>
float* shared_at(const Product& p, const PanelOf& panel, std::int64_t block, std::int64_t k_begin) {
  const GemmPlan& plan = p.plan;
  const std::int64_t per_block = plan.block_k / P::turn(plan);
  return p.shared + block * panel.packed_k() * plan.packed_chunk() +
         (turn_of<P>(p, panel, k_begin) - panel.in_place * per_block) * plan.packed_a();
}

// Returns where the packed columns of `b` from j on begin, for k elements of K from k_begin on; j
// lies within the panel.
template <class P>
float* shared_columns_at(const Product& p, const PanelOf& panel, std::int64_t j,
                         std::int64_t k_begin, std::int64_t k) {
  const GemmPlan& plan = p.plan;
  return p.shared +
         turn_of<P>(p, panel, k_begin) * plan.panel_blocks_n * plan.block_n * plan.strip_k +
         (j - panel.first_n * plan.block_n) * P::Strips::steps(k);
}

// Returns the columns of `b` that the block has, over the block's stretch of K.
template <class P>
Panel<typename P::T> columns_of(const Product& p, const Block& x) {
  const auto* data = reinterpret_cast<const typename P::T*>(p.b.at(x.batch, x.j, x.k_begin));
  return {data, p.b.outer_stride, p.b.k_stride, x.n, x.k};
}

// Sets x to the stretch of K that is packed from `k` on, which ends at `end` at the latest.
template <class P>
void begin_turn(const Product& p, Block& x, std::int64_t k, std::int64_t end) {
  const std::int64_t chunk_end = (k / p.plan.block_k + 1) * p.plan.block_k;
  x.k_begin = k;
  x.k = std::min({P::turn(p.plan), chunk_end - k, end - k});
}

// Returns before which element of K rows of `a` are read in place: all of K but a last block that
// ends within a tile, if rows have K side by side and fill whole tiles; else 0.
template <class P>
std::int64_t in_place_until(const Product& p) {
  if constexpr (P::Strips::kRowsInPlace > 0) {
    const GemmPlan& plan = p.plan;
    constexpr std::int64_t kRowsTogether = P::Strips::kRowsInPlace;
    if (p.a.k_stride != 1) return 0;
    if (plan.m % kRowsTogether != 0 || plan.block_m % kRowsTogether != 0) return 0;
    const bool is_whole = plan.k % P::Strips::kDepthInPlace == 0;
    return is_whole ? plan.k : (plan.blocks_k - 1) * plan.block_k;
  }
  return 0;
}

// Returns block x's rows of `a` over its stretch of K: rows of `a` itself if read in place, else
// packed ones: those of `block` that all threads share, or some packed here in `packed_a`, unless
// they are there already (`has_rows`).
template <class P>
typename P::Strips::Rows rows_of(const Product& p, const PanelOf& panel, const Block& x,
                                 std::int64_t block, float* packed_a, bool has_rows = false) {
  if constexpr (P::Strips::kRowsInPlace > 0) {
    if (x.k_begin < p.in_place_k) {
      const std::byte* rows = p.a.at(x.batch, x.i, x.k_begin);
      return P::Strips::rows_in_place(reinterpret_cast<const typename P::T*>(rows),
                                      p.a.outer_stride);
    }
  }
  if (p.plan.shares_a) {
    const std::int64_t row = x.i - (panel.first_m + block) * p.plan.block_m;
    float* rows = shared_at<P>(p, panel, block, x.k_begin) + row * P::Strips::steps(x.k);
    return P::Strips::packed_rows(rows, x.k);
  }
  if (!has_rows) pack_some<P>(p, x, 0, x.m, packed_a);
  return P::Strips::packed_rows(packed_a, x.k);
}

// Computes c[m, n] (+)= rows i.. of `a` times columns j.. of `b` over chunks of K, in their order,
// from the K at which the panel begins on to last_k. `after` is the block whose columns are likely
// to come next on this thread.
template <class P>
void multiply_block(const Product& p, const PanelOf& panel, Block x, Block after,
                    std::int64_t last_k, std::int64_t block, float* packed_a, bool has_rows,
                    float* strip, float* c, std::int64_t ldc) {
  const std::int64_t panel_k = panel.first_k * p.plan.block_k;
  begin_turn<P>(p, x, std::max(x.first_k, panel_k), last_k);
  begin_turn<P>(p, after, std::max(after.first_k, panel_k), p.plan.k);
  while (x.k_begin < last_k) {
    Block next = x;
    begin_turn<P>(p, next, x.k_begin + x.k, last_k);
    const auto a = rows_of<P>(p, panel, x, block, packed_a, has_rows);
    const bool is_last = next.k_begin >= last_k;
    P::Strips::multiply(x.k_begin > x.first_k, x.m, a, columns_of<P>(p, x),
                        columns_of<P>(p, is_last ? after : next), strip, c, ldc);
    x = next;
  }
}

// Computes what multiply_block() does, from columns of `b` that were packed for all threads.
template <class P>
void multiply_packed_block(const Product& p, const PanelOf& panel, Block x, std::int64_t last_k,
                           std::int64_t block, float* packed_a, float* c, std::int64_t ldc) {
  const std::int64_t first_k = std::max(x.first_k, panel.first_k * p.plan.block_k);
  begin_turn<P>(p, x, first_k, last_k);
  while (x.k_begin < last_k) {
    const auto a = rows_of<P>(p, panel, x, block, packed_a);
    P::Strips::multiply_packed(x.k_begin > x.first_k, x.m, a, x.n, x.k,
                               shared_columns_at<P>(p, panel, x.j, x.k_begin, x.k), c, ldc);
    begin_turn<P>(p, x, x.k_begin + x.k, last_k);
  }
}

// How much of an operand one job packs for all threads.
constexpr std::int64_t kPackedTogether = 64;  // rows or columns, some microseconds

// Packs rows of `a` for all threads: some rows of one block, over one of those of the panel's
// blocks of K in which rows are not read in place.
template <class P>
void pack_shared_rows(const Product& p, const PanelOf& panel, std::int64_t groups,
                      std::int64_t job) {
  const GemmPlan& plan = p.plan;
  const std::int64_t packed = panel.packed_k();
  const std::int64_t rows = ceil_div(plan.block_m, groups * P::Strips::kUnit) * P::Strips::kUnit;
  const std::int64_t row = job % groups * rows;
  const std::int64_t chunk = panel.first_k + panel.in_place + job / groups % packed;
  const std::int64_t block = job / groups / packed;
  Block x{.batch = 0, .i = (panel.first_m + block) * plan.block_m, .j = 0, .m = 0, .n = 0};
  x.m = std::min(plan.block_m, plan.m - x.i);
  if (row >= x.m) return;
  const std::int64_t end = std::min(plan.k, (chunk + 1) * plan.block_k);
  for (x.k_begin = chunk * plan.block_k; x.k_begin < end; x.k_begin += P::turn(plan)) {
    x.k = std::min(P::turn(plan), end - x.k_begin);
    pack_some<P>(p, x, row, std::min(rows, x.m - row), shared_at<P>(p, panel, block, x.k_begin));
  }
}

// Packs columns of `b` for all threads: some columns over one block of K.
template <class P>
void pack_shared_columns(const Product& p, const PanelOf& panel, std::int64_t job) {
  const GemmPlan& plan = p.plan;
  Block x{.batch = 0, .i = 0, .j = 0, .m = 0, .n = 0};
  x.j = panel.first_n * plan.block_n + job / panel.blocks_k * kPackedTogether;
  x.n = std::min(
      {kPackedTogether, plan.n - x.j, (panel.first_n + panel.blocks_n) * plan.block_n - x.j});
  const std::int64_t chunk = panel.first_k + job % panel.blocks_k;
  const std::int64_t end = std::min(plan.k, (chunk + 1) * plan.block_k);
  for (x.k_begin = chunk * plan.block_k; x.k_begin < end; x.k_begin += P::turn(plan)) {
    x.k = std::min(P::turn(plan), end - x.k_begin);
    P::Strips::pack_columns_of_b(columns_of<P>(p, x),
                                 shared_columns_at<P>(p, panel, x.j, x.k_begin, x.k));
  }
}

// Adds sum[i] += factor · x[begin + i].
void add_part(const TensorRef& x, std::int64_t begin, std::int64_t count, float factor,
              float* sum) {
  const auto bytes = static_cast<std::int64_t>(size_of(x.dtype));
  Tile tile;
  for (std::int64_t i = 0; i < count; i += kTile) {
    const std::int64_t n = std::min(kTile, count - i);
    to_floats(x.as<const std::byte>() + (begin + i) * bytes, x.dtype, 1, n, tile.data);
    if (factor != 1.0f) {
      const V scale = splat(factor);
      map([&](V c) HWY_ATTR { return scale * c; }, n, tile.data,
          static_cast<const float*>(tile.data));
    }
    map(functors::Add(), n, sum + i, static_cast<const float*>(tile.data),
        static_cast<const float*>(sum + i));
  }
}

// Sets y[begin + i] = sum[i] (+ addend[begin + i], or its column's bias); may overwrite `sum`.
void write_sum(const Product& p, float* sum, std::int64_t begin, std::int64_t count) {
  const auto bytes = static_cast<std::int64_t>(size_of(p.y.dtype));
  if (p.addend != nullptr) add_part(*p.addend, begin, count, p.beta, sum);
  for (std::int64_t i = 0; p.bias != nullptr && i < count;) {
    const std::int64_t column = (begin + i) % p.plan.n;
    const std::int64_t n = std::min(p.plan.n - column, count - i);
    add_part(*p.bias, column, n, 1.0f, sum + i);
    i += n;
  }
  from_floats(sum, count, p.y.dtype, p.y.as<std::byte>() + begin * bytes);
}

// A job: a block, or the part of it from a row and a column on; which of the panel's blocks it is,
// the index of its rows in the panel, its part of K, and where that ends.
struct Job {
  std::int64_t number = 0;
  Block x;
  std::int64_t row = 0, column = 0, row_block = 0, split = 0, last_k = 0;
};

// The jobs of a panel: whole blocks, and then the parts of the last ones.
struct Jobs {
  std::int64_t whole = 0, parted = 0, parts_m = 1, parts_n = 1, part_m = 0, part_n = 0;

  Jobs(const GemmPlan& plan, const PanelOf& panel, std::int64_t unit) {
    const std::int64_t all = plan.batch * panel.blocks_m * panel.blocks_n * plan.splits;
    part_m = round_up(ceil_div(plan.block_m, plan.tail_parts_m), unit);
    part_n = round_up(ceil_div(plan.block_n, plan.tail_parts_n), kColumns);
    parts_m = ceil_div(plan.block_m, part_m), parts_n = ceil_div(plan.block_n, part_n);
    parted = plan.tail_blocks(all);
    whole = all - parted;
  }
  std::int64_t count() const { return whole + parted * parts_m * parts_n; }
};

Job job_of(const GemmPlan& plan, const PanelOf& panel, const Jobs& jobs, std::int64_t index) {
  const std::int64_t parts = jobs.parts_m * jobs.parts_n, in_tail = index - jobs.whole;
  const std::int64_t number = in_tail < 0 ? index : jobs.whole + in_tail / parts;
  // Blocks of one column panel are neighbours: they read the same part of b. Where a is shared,
  // those of the same rows are.
  const bool by_rows = plan.shares_a;
  const std::int64_t bm = (by_rows ? number / panel.blocks_n : number) % panel.blocks_m;
  const std::int64_t bn = (by_rows ? number : number / panel.blocks_m) % panel.blocks_n;
  const std::int64_t split = number / (panel.blocks_m * panel.blocks_n) % plan.splits;
  const std::int64_t batch = number / (panel.blocks_m * panel.blocks_n * plan.splits);
  const std::int64_t i = (panel.first_m + bm) * plan.block_m;
  const std::int64_t j = (panel.first_n + bn) * plan.block_n;
  Job job{.number = number,
          .x = {.batch = batch, .i = i, .j = j, .m = 0, .n = 0},
          .row_block = bm,
          .split = split};
  job.x.m = std::min(plan.block_m, plan.m - job.x.i);
  job.x.n = std::min(plan.block_n, plan.n - job.x.j);
  if (in_tail >= 0) {
    job.row = in_tail % parts / jobs.parts_n * jobs.part_m;
    job.column = in_tail % jobs.parts_n * jobs.part_n;
    job.x.i += job.row, job.x.j += job.column;
    job.x.m = std::clamp<std::int64_t>(job.x.m - job.row, 0, jobs.part_m);
    job.x.n = std::clamp<std::int64_t>(job.x.n - job.column, 0, jobs.part_n);
  }
  job.x.first_k = split * plan.blocks_k / plan.splits * plan.block_k;
  job.last_k = std::min({plan.k, (split + 1) * plan.blocks_k / plan.splits * plan.block_k,
                         (panel.first_k + panel.blocks_k) * plan.block_k});
  return job;
}

// Returns how many columns of a job's block are multiplied over all of K before the next ones
// begin, so that a second-level cache keeps their sums. All of them, if rows of `a` would be packed
// again for each.
template <class P>
std::int64_t columns_together(const Product& p, const Job& job) {
  if constexpr (P::Strips::kColumnsTogether > 0) {
    const bool is_one_turn = job.last_k - job.x.first_k <= P::turn(p.plan);
    const bool packs_rows = !p.plan.shares_a && job.last_k > p.in_place_k;
    if (!packs_rows || is_one_turn) return std::min(job.x.n, P::Strips::kColumnsTogether);
  }
  return job.x.n;
}

// Computes one block of the result, or a part of it, over one part of K. `ahead`: the job that this
// thread is likely to take next.
void run_job(const Product& p, const PanelOf& panel, const Jobs& jobs, std::int64_t index,
             std::int64_t ahead, int thread) {
  const GemmPlan& plan = p.plan;
  const Job job = job_of(plan, panel, jobs, index);
  const Block& x = job.x;
  if (x.m == 0 || x.n == 0) return;  // a part of a block at the edge
  float* block = p.scratch + thread * plan.floats_per_thread();
  const std::int64_t at = (x.batch * plan.m + x.i) * plan.n + x.j;
  const bool is_kept_apart = plan.result_block > 0;
  float* c = nullptr;
  std::int64_t ldc = plan.n;
  if (plan.splits > 1) {
    c = p.partials + job.split * plan.batch * plan.m * plan.n + at;
  } else if (!is_kept_apart) {
    c = p.y.as<float>() + at;
  } else {
    const std::int64_t within = job.row * plan.block_n + job.column;
    c = plan.keeps_sums() ? p.kept_sums + job.number * plan.result_block + within : block;
    ldc = plan.block_n;
  }
  float* packed = block + (plan.keeps_sums() ? 0 : plan.result_block);
  const bool writes = is_kept_apart && job.last_k == plan.k;
  const auto write = [&](float* sums, std::int64_t j, std::int64_t n) {
    for (std::int64_t r = 0; r < x.m && writes; ++r) {
      write_sum(p, sums + r * ldc, at + r * plan.n + j, n);
    }
  };
  if (plan.shares_b) {
    with_packing(p, [&]<class P>(P) {
      multiply_packed_block<P>(p, panel, x, job.last_k, job.row_block, packed, c, ldc);
    });
    return write(c, 0, x.n);
  }
  Block after = job_of(plan, panel, jobs, ahead).x;
  if (ahead == index) after.n = 0;  // there is none
  with_packing(p, [&]<class P>(P) {
    const std::int64_t together = columns_together<P>(p, job);
    const bool reuses_sums = writes && !plan.keeps_sums() && together < x.n;
    if (reuses_sums) ldc = together;
    for (std::int64_t j = 0; j < x.n; j += together) {
      Block some = x, next = x;
      some.j += j, some.n = std::min(together, x.n - j);
      next.j += j + together, next.n = std::min(together, x.n - j - together);
      float* sums = reuses_sums ? c : c + j;
      multiply_block<P>(p, panel, some, next.n > 0 ? next : after, job.last_k, job.row_block,
                        packed + plan.packed_b(), j > 0, packed, sums, ldc);
      write(sums, j, some.n);
    }
  });
}

// Computes all blocks of a panel. First all threads pack the operand that they share: `a`, or `b`,
// unless the panel before had the same `b` (`packs_b` is false).
void run_panel(const KernelCall& call, const Product& p, const PanelOf& panel, bool packs_b) {
  const GemmPlan& plan = p.plan;
  if (plan.shares_a) {
    const std::int64_t groups = ceil_div(plan.block_m, kPackedTogether);
    for_chunks(call, panel.blocks_m * panel.packed_k() * groups, [&](std::int64_t job, int) {
      with_packing(p, [&]<class P>(P) { pack_shared_rows<P>(p, panel, groups, job); });
    });
  } else if (packs_b) {
    const std::int64_t columns =
        std::min(panel.blocks_n * plan.block_n, plan.n - panel.first_n * plan.block_n);
    const std::int64_t groups = ceil_div(columns, kPackedTogether);
    for_chunks(call, groups * panel.blocks_k, [&](std::int64_t job, int) {
      with_packing(p, [&]<class P>(P) { pack_shared_columns<P>(p, panel, job); });
    });
  }
  std::int64_t unit = 0;
  with_packing(p, [&]<class P>(P) { unit = P::Strips::kUnit; });
  const Jobs jobs(plan, panel, unit);
  const int threads = threads_of(call);
  for_chunks(call, jobs.count(), [&](std::int64_t job, int thread) {
    run_job(p, panel, jobs, job, job + threads < jobs.count() ? job + threads : job, thread);
  });
}

// Computes y panel by panel: for some columns all rows, and for some rows of these all of K. If
// what is not read in place fits into the space for packed rows, panels are larger than planned.
void run_panels(const KernelCall& call, const Product& p) {
  const GemmPlan& plan = p.plan;
  const std::int64_t in_place = ceil_div(p.in_place_k, plan.block_k);
  std::int64_t most_m = plan.panel_blocks, most_k = plan.panel_blocks_k;
  if (plan.shares_a && plan.blocks_m * (plan.blocks_k - in_place) <= most_m * most_k) {
    most_k = plan.blocks_k;
    // Sums that are kept have the space of a planned panel.
    if (!plan.keeps_sums()) most_m = plan.blocks_m;
  }
  PanelOf panel;
  for (; panel.first_n < plan.blocks_n; panel.first_n += panel.blocks_n) {
    panel.blocks_n = std::min(plan.panel_blocks_n, plan.blocks_n - panel.first_n);
    for (panel.first_m = 0; panel.first_m < plan.blocks_m; panel.first_m += panel.blocks_m) {
      panel.blocks_m = std::min(most_m, plan.blocks_m - panel.first_m);
      for (panel.first_k = 0; panel.first_k < plan.blocks_k; panel.first_k += panel.blocks_k) {
        panel.blocks_k = std::min(most_k, plan.blocks_k - panel.first_k);
        panel.in_place = std::clamp<std::int64_t>(in_place - panel.first_k, 0, panel.blocks_k);
        const bool has_b = panel.first_m > 0 && panel.blocks_k == plan.blocks_k;
        run_panel(call, p, panel, plan.shares_b && !has_b);
      }
    }
  }
}

// Adds the sums over the parts of K, in the order of the parts, and writes y.
void combine(const KernelCall& call, const Product& p) {
  const std::int64_t count = p.y.count();
  for_tiles(call, count, [&](std::int64_t begin, std::int64_t n) {
    float* sum = p.partials + begin;
    for (std::int64_t s = 1; s < p.plan.splits; ++s) {
      map(functors::Add(), n, sum, static_cast<const float*>(sum), p.partials + s * count + begin);
    }
    write_sum(p, sum, begin, n);
  });
}

void repeat_row(const TensorRef& row, const TensorRef& y) {
  const std::size_t bytes = static_cast<std::size_t>(row.count()) * size_of(row.dtype);
  auto* to = y.as<std::byte>();
  for (std::int64_t m = 0; m < y.count() / row.count(); ++m, to += bytes) {
    std::memcpy(to, row.data, bytes);
  }
}

// Sets y = beta · c, which is the result if K is 0.
void scale_addend(const TensorRef& c, float beta, const TensorRef& y) {
  const auto bytes = static_cast<std::int64_t>(size_of(y.dtype));
  if (beta == 1.0f) {
    if (c.data != y.data) std::memcpy(y.data, c.data, static_cast<std::size_t>(y.count() * bytes));
    return;
  }
  for (std::int64_t i = 0; i < y.count(); i += kTile) {
    const std::int64_t n = std::min(kTile, y.count() - i);
    float sums[kTile] = {};
    add_part(c, i, n, beta, sums);
    from_floats(sums, n, y.dtype, y.as<std::byte>() + i * bytes);
  }
}

// Facts about a product that are known before its operands have addresses.
struct ProductPlan {
  GemmPlan gemm;
  Bf16Products way = bf16_products();
  bool transpose_a = false, transpose_b = false;
  float beta = 1;  // of what is added to
};

void matmul_kernel(const KernelCall& call, const ProductPlan& planned) {
  const TensorRef &a = call.inputs[0], &b = call.inputs[1], &y = call.outputs[0];
  const GemmPlan& plan = planned.gemm;
  if (y.count() == 0) return;
  const TensorRef* third = call.inputs.size() == 3 ? &call.inputs[2] : nullptr;
  const bool has_bias = third != nullptr && third->shape.rank() == 1;
  const TensorRef *bias = has_bias ? third : nullptr, *addend = has_bias ? nullptr : third;
  if (plan.k == 0) {
    const std::size_t bytes = static_cast<std::size_t>(y.count()) * size_of(y.dtype);
    if (has_bias) return repeat_row(*bias, y);
    if (addend == nullptr) std::memset(y.data, 0, bytes);
    if (addend != nullptr) scale_addend(*addend, planned.beta, y);
    return;
  }
  Product p{.plan = plan,
            .way = planned.way,
            .a = as_matrix(a, planned.transpose_a),
            .b = as_matrix(b, !planned.transpose_b),
            .y = y,
            .addend = addend,
            .beta = planned.beta,
            .bias = bias,
            .scratch = reinterpret_cast<float*>(call.workspace.data()),
            .shared = nullptr,
            .kept_sums = nullptr,
            .partials = nullptr};
  normalise(p.a, plan.m, plan.k);
  normalise(p.b, plan.n, plan.k);
  if (plan.is_vector) {
    multiply_vector(call, plan, p.a, p.b, p.scratch,
                    [&](float* sums, std::int64_t begin, std::int64_t count) {
                      write_sum(p, sums, begin, count);
                    });
    return;
  }
  p.shared = p.scratch + plan.floats_per_thread() * threads_of(call);
  p.kept_sums = p.shared + plan.shared_floats() - plan.kept_sums();
  p.partials = p.shared + plan.shared_floats();
  with_packing(p, [&]<class P>(P) { p.in_place_k = in_place_until<P>(p); });
  run_panels(call, p);
  if (plan.splits > 1) combine(call, p);
}

std::unique_ptr<PreparedKernel> prepare_matmul(KernelSpec spec, const LaunchContext& context) {
  const OperandSpec &a = spec.inputs[0], &y = spec.outputs[0];
  ProductPlan plan;
  plan.transpose_a = spec.attrs.flag("transpose_a");
  plan.transpose_b = spec.attrs.flag("transpose_b");
  if (spec.op->find_attr("beta") != nullptr)
    plan.beta = static_cast<float>(spec.attrs.real("beta"));
  const std::int64_t m = y.shape.back(1), n = y.shape.back(0), k = a.shape.back(plan.transpose_a);
  const std::int64_t count = y.shape.product();
  plan.gemm = plan_gemm(count == 0 ? 0 : count / (m * n), m, n, k, a.dtype, y.dtype,
                        threads_of(context), spec.inputs.size() == 3);
  return std::make_unique<PlannedKernel<ProductPlan>>(std::move(spec), plan, matmul_kernel);
}

}  // namespace

KernelTable::Prepare matmul_preparation() {
  return prepare_matmul;
}

}  // namespace tracestep::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tracestep::cpu {

HWY_EXPORT(matmul_preparation);

namespace {

std::unique_ptr<PreparedKernel> prepare_rows(KernelSpec spec, const LaunchContext& context) {
  return prepare_added_rows(spec, [&](KernelSpec sum) {
    return HWY_DYNAMIC_DISPATCH(matmul_preparation)()(std::move(sum), context);
  });
}

}  // namespace

void add_matmul_kernels(KernelTable& table) {
  for (const char* op : {"matmul", "matmul_add", "matmul_bias"}) {
    table.add_planned(op, HWY_DYNAMIC_DISPATCH(matmul_preparation)());
  }
  table.add_planned("matmul_add_rows", prepare_rows);
}

}  // namespace tracestep::cpu
#endif
