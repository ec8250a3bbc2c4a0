// The gradient of flash_attention: a block of keys and values stays while panels of queries pass by
// (Dao 2023, alg. 2). Gradients of the block grow in the thread's own scratch. That of q is shared:
// each panel takes the blocks in their order, one turn after the other, so that its sums have the
// same bits for any number of threads.
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <thread>

#include "backends/cpu/bf16_products.h"
#include "backends/cpu/kernels.h"
#include "backends/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/flash_attention_grad.cpp"
#include <hwy/foreach_target.h>

#include <hwy/highway.h>

#include "backends/cpu/attention-inl.h"
#include "backends/cpu/attention-tiles-inl.h"
#include "backends/cpu/tiles-inl.h"
#include "base/integers.h"

HWY_BEFORE_NAMESPACE();
namespace tracestep::cpu::HWY_NAMESPACE {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Backward {
  AttentionProblem p;
  Heads dy, q, k, v, y, dq, dk, dv;
  const float* lse;  // [heads, queries]
  AttentionPlan plan;
  Bf16Products way;
  std::int64_t block;   // keys that stay
  std::int64_t panels;  // of queries
  float* inner;         // [heads, queries]: dy·y
  float* missing;       // [heads, queries]: what lse lacks, to base two
  float* wide_dq;       // [heads, queries, width] where the dtype of q is narrow
  std::int32_t* turns;  // [heads, panels]: the block whose turn it is to add to the panel
  float* scratch;

  explicit Backward(const KernelCall& call)
      : p(call, 1),
        dy(call.inputs[0], p.token_major),
        q(call.inputs[1], false),
        k(call.inputs[2], false),
        v(call.inputs[3], false),
        y(call.inputs[4], p.token_major),
        dq(call.outputs[0], p.token_major),
        dk(call.outputs[1], p.token_major),
        dv(call.outputs[2], p.token_major),
        lse(call.inputs[5].as<const float>()),
        plan(plan_attention({.heads = p.heads,
                             .key_heads = p.key_heads,
                             .queries = p.queries,
                             .keys = p.keys,
                             .width = p.width,
                             .dtype = q.dtype})),
        way(bf16_products()),
        block(round_up(plan.backward_keys, takes_tiles(way, q.dtype, p.width) ? 1 : kRows)),
        panels(ceil_div(p.queries, kPanel)),
        inner(reinterpret_cast<float*>(call.workspace.data())),
        missing(inner + plan.row_floats()),
        wide_dq(missing + plan.row_floats()),
        turns(reinterpret_cast<std::int32_t*>(wide_dq + plan.dq_floats())),
        scratch(wide_dq + plan.dq_floats() + plan.turn_counters()) {}

  // Returns a copy of this problem with the document bounds of the text that `head` of q reads.
  Backward of_head(std::int64_t head) const {
    Backward out = *this;
    out.p = p.of_head(head);
    return out;
  }
  float* own(int thread) const { return scratch + thread * plan.backward_floats_per_thread(); }
  bool is_narrow() const { return q.dtype != DType::kF32; }
  // Returns the index of the first block of keys that this panel's queries see.
  std::int64_t first_block(std::int64_t panel) const {
    return p.first_visible(panel * kPanel) / block;
  }
};

// The buffers of one thread.
struct Scratch {
  std::int64_t ldo;                    // of the gradients
  float *k, *v, *k_along, *dk, *dv;    // the block; the first two in strips of kRows
  float *q, *dy, *q_along, *dy_along;  // the panel; the first two in strips of kColumns
  float *weights, *slopes, *lse, *lse_rest,
      *inner;  // p and ds, and statistics of the panel's queries

  Scratch(float* at, std::int64_t width, std::int64_t block) : ldo(round_up(width, kColumns)) {
    const auto take = [&at](std::int64_t n) {
      float* out = at;
      at += round_up(n, kAligned);
      return out;
    };
    k = take(block * width);
    v = take(block * width);
    k_along = take(block * ldo);
    dk = take(block * ldo);
    dv = take(block * ldo);
    q = take(kPanel * width);
    dy = take(kPanel * width);
    q_along = take(kPanel * ldo);
    dy_along = take(kPanel * ldo);
    weights = take(block * kPanel);
    slopes = take(block * kPanel);
    lse = take(kPanel);
    lse_rest = take(kPanel);
    inner = take(kPanel);
  }
};

// A block of keys and a panel of queries that are computed together.
struct Meeting {
  std::int64_t head = 0, panel = 0;      // of the queries
  std::int64_t first_key = 0, keys = 0;  // those that the panel's last query sees
  std::int64_t first_query = 0, queries = 0;
  bool is_first = false, is_last = false;  // of the blocks that the panel meets

  Sight sight(const AttentionProblem& p) const { return {p, first_key, keys, first_query}; }
};

// --- the two ways to multiply -------------------------------------------------------------------

// Multiplies heads of any dtype in float32; a block's keys and values are strips of kRows.
template <class T_>
struct VectorProducts {
  using T = T_;
  static constexpr std::int64_t kKeyUnit = kRows;  // rows of the block that are multiplied together

  void pack_rows(const T* rows, std::int64_t stride, std::int64_t count, std::int64_t width,
                 float* dst) {
    pack_across<kRows>(rows, stride, count, width, dst);
  }
  // Packs keys as the second operand of products with slopes.
  void pack_keys_along(const T* rows, std::int64_t stride, std::int64_t count, std::int64_t width,
                       float* dst) {
    pack_along(rows, stride, count, width, dst);
  }
  void pack_queries(const T* rows, std::int64_t stride, std::int64_t count, std::int64_t width,
                    float scale, float* dst) {
    pack_across<kColumns>(rows, stride, count, width, dst);
    const std::int64_t packed = round_up(count, kColumns), rest = kPanel - packed;
    if (scale != 1.0f) scale_all(dst, packed * width, scale);
    std::fill_n(dst + packed * width, rest * width, 0.0f);
  }
  void pack_queries_along(const T* rows, std::int64_t stride, std::int64_t count,
                          std::int64_t width, float* dst) {
    pack_along(rows, stride, count, width, dst);
  }
  // Computes scores; the queries were scaled when they were packed.
  void score(const Sight& sight, std::int64_t queries, std::int64_t width, float,
             const float* packed_keys, const float* packed_queries, float* panel) {
    score_panel(sight, queries, width, packed_keys, packed_queries, panel);
  }
  void add_to_block(const Backward& b, const Scratch& s, const Meeting& m, const float* panel,
                    const float* rows, float* gradient);
  void add_to_queries(const Backward& b, const Scratch& s, const Meeting& m, std::int64_t packed,
                      float* dq, std::int64_t ldq);
};

#if HWY_TARGET == HWY_AVX3
// Multiplies heads of bfloat16 by tiles. A block's keys and values are packed as rows of `a`, and
// its keys once more, transposed, for the gradient of queries.
template <class Tiles>
struct TileProducts {
  using T = BF16;
  static constexpr std::int64_t kKeyUnit = 1;
  Tiles& tiles;

  void pack_rows(const BF16* rows, std::int64_t stride, std::int64_t count, std::int64_t width,
                 float* dst) {
    pack_tile_rows(rows, stride, 1, count, width, dst);
  }
  void pack_keys_along(const BF16* rows, std::int64_t stride, std::int64_t count,
                       std::int64_t width, float* dst) {
    pack_tile_rows(rows, 1, stride, width, count, dst);
  }
  // Packs rows of q as strips; `scale` is left to score().
  void pack_queries(const BF16* rows, std::int64_t stride, std::int64_t count, std::int64_t width,
                    float, float* dst) {
    pack_strips_across(rows, stride, count, width, dst);
  }
  void pack_queries_along(const BF16* rows, std::int64_t stride, std::int64_t count,
                          std::int64_t width, float* dst) {
    pack_strips_along(rows, stride, count, width, dst);
  }
  void score(const Sight& sight, std::int64_t queries, std::int64_t width, float scale,
             const float* packed_keys, const float* packed_queries, float* panel) {
    score_tiles(tiles, sight, queries, width, packed_keys, packed_queries, panel);
    for (std::int64_t j = 0; scale != 1.0f && j < sight.keys; ++j) {
      scale_all(panel + j * kPanel, queries, scale);
    }
  }
  void add_to_block(const Backward& b, const Scratch& s, const Meeting& m, const float* panel,
                    const float* rows, float* gradient);
  void add_to_queries(const Backward& b, const Scratch& s, const Meeting& m, std::int64_t packed,
                      float* dq, std::int64_t ldq);
};
#endif

// Calls f with the VectorProducts or TileProducts that multiply the heads of this call.
template <class F>
void with_products(const Backward& b, const F& f) {
#if HWY_TARGET == HWY_AVX3
  const auto by_tiles = [&]<class Tiles>(Tiles& tiles) { f(TileProducts<Tiles>{tiles}); };
  if (with_tiles(b.way, b.q.dtype, b.p.width, by_tiles)) return;
#endif
  with_type(b.q.dtype, [&](auto type) { f(VectorProducts<decltype(type)>()); });
}

// --- the panel ---------------------------------------------------------------------------------

float score_scale(const Backward& b) {
  return static_cast<float>(b.p.scale * kLog2E);
}

template <class P>
void pack_panel(P& products, const Backward& b, const Scratch& s, const Meeting& m) {
  using T = typename P::T;
  const std::int64_t width = b.p.width;
  const T *q = b.q.rows<T>(m.head, m.first_query), *dy = b.dy.rows<T>(m.head, m.first_query);
  products.pack_queries(q, b.q.row_stride, m.queries, width, score_scale(b), s.q);
  products.pack_queries(dy, b.dy.row_stride, m.queries, width, 1.0f, s.dy);
  products.pack_queries_along(q, b.q.row_stride, m.queries, width, s.q_along);
  products.pack_queries_along(dy, b.dy.row_stride, m.queries, width, s.dy_along);
  const std::int64_t at = m.head * b.p.queries + m.first_query;
  // The log-sum-exps to base two, as the scores are, in two parts: near 10,000 a float has only ten
  // bits after the point.
  for (std::int64_t i = 0; i < m.queries; ++i) {
    const double lse =
        static_cast<double>(b.lse[at + i]) * kLog2E + static_cast<double>(b.missing[at + i]);
    s.lse[i] = static_cast<float>(lse);
    s.lse_rest[i] = static_cast<float>(lse - static_cast<double>(s.lse[i]));
  }
  std::copy_n(b.inner + at, m.queries, s.inner);
  // Queries past the last get weights of 0.
  std::fill_n(s.lse + m.queries, kPanel - m.queries, kInfinity);
  std::fill_n(s.lse_rest + m.queries, kPanel - m.queries, 0.0f);
  std::fill_n(s.inner + m.queries, kPanel - m.queries, 0.0f);
}

// Sets p = 2^(scores - lse) in place of scores, and ds = p ∘ (dp - D) in place of dp, times the
// slope of a cap; in `rows` rows, both are 0 where a key is hidden or after the last one.
HWY_NOINLINE void weigh(const Backward& b, const Scratch& s, const Meeting& m, std::int64_t rows,
                        std::int64_t columns) {
  const Sight sight = m.sight(b.p);
  const bool has_cap = b.p.cap != 0.0f;
  const float per_cap = has_cap ? 1.0f / b.p.cap : 0.0f;
  for (std::int64_t j = 0; j < rows; ++j) {
    float *p = s.weights + j * kPanel, *ds = s.slopes + j * kPanel;
    const bool is_key = j < m.keys;  // and not a row that fills the strip, past the last key
    const std::int64_t hidden = is_key ? sight.columns_before(j) : kPanel;
    const std::int64_t until = is_key ? sight.columns_until(j) : kPanel;
    const std::int64_t from = hidden / kLanes * kLanes;
    for (std::int64_t c = from; c < columns; c += kLanes) {
      const V score = load(p + c);
      const V weight = exp2((score - load(s.lse + c)) - load(s.lse_rest + c));
      store(weight, p + c);
      const V slope = weight * (load(ds + c) - load(s.inner + c));
      const V tanh = score * splat(per_cap);
      store(has_cap ? slope * (splat(1.0f) - tanh * tanh) : slope, ds + c);
    }
    for (float* row : {p, ds}) {
      std::fill_n(row, hidden, 0.0f);
      std::fill(row + until, row + kPanel, 0.0f);
    }
  }
}

// --- products ----------------------------------------------------------------------------------

// Adds gradient[keys, width] += panel[keys, queries] rows[queries, width].
template <class T>
void VectorProducts<T>::add_to_block(const Backward& b, const Scratch& s, const Meeting& m,
                                     const float* panel, const float* rows, float* gradient) {
  const Sight sight = m.sight(b.p);
  for (std::int64_t d = 0; d < s.ldo; d += kColumns) {
    for (std::int64_t r = 0; r < m.keys; r += kRows) {
      const std::int64_t from = std::min(sight.columns_before(r), m.queries);
      panel_kernel<kPanel, 1>(m.queries - from, panel + r * kPanel + from,
                              rows + d * m.queries + from * kColumns, gradient + r * s.ldo + d,
                              s.ldo, AddTo());
    }
  }
}

// Sets dq[queries, width] (+)= scale · slopesᵀ keys; `packed` is how many keys k_along holds.
template <class T>
void VectorProducts<T>::add_to_queries(const Backward& b, const Scratch& s, const Meeting& m,
                                       std::int64_t packed, float* dq, std::int64_t ldq) {
  const std::int64_t width = b.p.width;
  const Sight sight = m.sight(b.p);
  for (std::int64_t d = 0; d < width; d += kColumns) {
    const float* keys = s.k_along + d * packed;
    for (std::int64_t r = 0; r < m.queries; r += kRows) {
      const std::int64_t seen = sight.keys_until(r + kRows);
      float* out = dq + r * ldq + d;
      if (r + kRows <= m.queries && d + kColumns <= width) {
        if (m.is_first) {
          panel_kernel<1, kPanel>(seen, s.slopes + r, keys, out, ldq, SetScaled{b.p.scale});
        } else {
          panel_kernel<1, kPanel>(seen, s.slopes + r, keys, out, ldq, AddScaled{b.p.scale});
        }
        continue;
      }
      alignas(64) float edge[kRows * kColumns];
      const std::int64_t rows = std::min(kRows, m.queries - r);
      const std::int64_t columns = std::min(kColumns, width - d);
      panel_kernel<1, kPanel>(seen, s.slopes + r, keys, edge, kColumns, SetScaled{b.p.scale});
      for (std::int64_t i = 0; i < rows; ++i) {
        for (std::int64_t c = 0; c < columns; ++c) {
          const float x = edge[i * kColumns + c];
          out[i * ldq + c] = m.is_first ? x : out[i * ldq + c] + x;
        }
      }
    }
  }
}

#if HWY_TARGET == HWY_AVX3
template <class Tiles>
void TileProducts<Tiles>::add_to_block(const Backward& b, const Scratch& s, const Meeting& m,
                                       const float* panel, const float* rows, float* gradient) {
  const Sight sight = m.sight(b.p);
  const std::int64_t columns = round_up(m.queries, kBlock);
  alignas(64) float packed[kBlock * kPanel / 2];
  for (std::int64_t r = 0; r < m.keys; r += kBlock) {
    const std::int64_t count = std::min(kBlock, m.keys - r);
    const std::int64_t from = std::min(sight.columns_before(r), columns) / kDeep * kDeep;
    round_panel_rows(panel + r * kPanel + from, count, columns - from, packed);
    for (std::int64_t d = 0; d < b.p.width; d += kBlock) {
      multiply_rows(tiles, true, count, (columns - from) / kDeep, packed,
                    rows + d * steps_of(m.queries) + from / 2 * kColumns, gradient + r * s.ldo + d,
                    s.ldo);
    }
  }
}

// Computes dq by its transpose, for which slopes are multiplied as they stand.
template <class Tiles>
void TileProducts<Tiles>::add_to_queries(const Backward& b, const Scratch& s, const Meeting& m,
                                         std::int64_t packed, float* dq, std::int64_t ldq) {
  const Sight sight = m.sight(b.p);
  alignas(64) float strip[AttentionPlan::kMostBackwardKeys / 2 * kColumns];
  alignas(64) float block[kBlock * kBlock];
  const V scale = splat(b.p.scale);
  for (std::int64_t c = 0; c < m.queries; c += kBlock) {
    const std::int64_t seen = sight.keys_until(c + kBlock);
    join_panel_rows(s.slopes + c, seen, strip);
    for (std::int64_t d = 0; d < b.p.width; d += kBlock) {
      multiply_tiles<2, 2>(tiles, false, steps_of(seen) / kTilePairs,
                           packed_tiles(s.k_along + d * steps_of(packed)), strip, block, kBlock);
      for (std::int64_t i = 0; i < kBlock * kBlock; i += kLanes * kBlock) {
        for (std::int64_t j = 0; j < kBlock; j += kLanes) {
          float* out = dq + (c + j) * ldq + d + i / kBlock;
          const std::int64_t rows = m.queries - c - j;
          for_transposed(block + i + j, kBlock, [&](int r, V x) HWY_ATTR {
            if (r >= rows) return;
            float* row = out + r * ldq;
            store(m.is_first ? x * scale : V{hn::MulAdd(x.v, scale.v, load(row).v)}, row);
          });
        }
      }
    }
  }
}
#endif

// --- turns -------------------------------------------------------------------------------------

// Waits until all blocks before `block` have added to the panel. This cannot deadlock: chunks are
// handed out in order, and the first unfinished one never waits.
void wait_for_turn(std::int32_t& turn, std::int64_t block) {
  const std::atomic_ref<std::int32_t> blocks(turn);
  for (int tries = 0; blocks.load(std::memory_order_acquire) != block; ++tries) {
    if (tries > 1000) std::this_thread::yield();
  }
}
void end_turn(std::int32_t& turn, std::int64_t block) {
  std::atomic_ref<std::int32_t>(turn).store(static_cast<std::int32_t>(block + 1),
                                            std::memory_order_release);
}

template <class P>
void give_to_queries(P& products, const Backward& b, const Scratch& s, const Meeting& m,
                     std::int64_t packed, std::int64_t block) {
  std::int32_t& turn = b.turns[m.head * b.panels + m.panel];
  wait_for_turn(turn, block);
  if (b.is_narrow()) {
    float* rows = b.wide_dq + (m.head * b.p.queries + m.first_query) * b.p.width;
    products.add_to_queries(b, s, m, packed, rows, b.p.width);
    for (std::int64_t i = 0; m.is_last && i < m.queries; ++i) {
      from_floats(rows + i * b.p.width, b.p.width, b.dq.dtype, b.dq.at(m.head, m.first_query + i));
    }
  } else {
    products.add_to_queries(
        b, s, m, packed, reinterpret_cast<float*>(b.dq.at(m.head, m.first_query)), b.dq.row_stride);
  }
  end_turn(turn, block);
}

// --- the block ---------------------------------------------------------------------------------

// Returns how many columns of a panel are computed: its queries, rounded up to whole tiles.
std::int64_t columns_of(const Meeting& m) {
  return round_up(round_up(m.queries, kRows), kColumns);
}

template <class P>
void meet(P& products, const Backward& b, const Scratch& s, const Meeting& m, std::int64_t packed,
          std::int64_t block) {
  pack_panel(products, b, s, m);
  const std::int64_t columns = columns_of(m);
  const Sight sight = m.sight(b.p);
  products.score(sight, columns, b.p.width, score_scale(b), s.k, s.q, s.weights);
  cap_panel(sight, columns, s.weights);
  products.score(sight, columns, b.p.width, 1.0f, s.v, s.dy, s.slopes);
  weigh(b, s, m, round_up(m.keys, P::kKeyUnit), columns);
  if (b.dv) products.add_to_block(b, s, m, s.weights, s.dy_along, s.dv);
  if (b.dk) products.add_to_block(b, s, m, s.slopes, s.q_along, s.dk);
  if (b.dq) give_to_queries(products, b, s, m, packed, block);
}

void write_rows(const Heads& to, std::int64_t head, std::int64_t first, std::int64_t count,
                std::int64_t width, const float* rows, std::int64_t ld) {
  for (std::int64_t i = 0; to && i < count; ++i) {
    from_floats(rows + i * ld, width, to.dtype, to.at(head, first + i));
  }
}

// Computes a block's dK and dV, and adds to dQ, from the panels of every head that shares its keys.
template <class P>
void run_block(P products, const Backward& b, std::int64_t key_head, std::int64_t block,
               float* scratch) {
  const AttentionProblem& p = b.p;
  const Scratch s(scratch, p.width, b.block);
  const std::int64_t first = block * b.block, keys = std::min(b.block, p.keys - first);
  using T = typename P::T;
  const T *k = b.k.rows<T>(key_head, first), *v = b.v.rows<T>(key_head, first);
  products.pack_rows(k, b.k.row_stride, keys, p.width, s.k);
  products.pack_rows(v, b.v.row_stride, keys, p.width, s.v);
  products.pack_keys_along(k, b.k.row_stride, keys, p.width, s.k_along);
  std::fill_n(s.dk, b.block * s.ldo, 0.0f);
  std::fill_n(s.dv, b.block * s.ldo, 0.0f);
  for (std::int64_t head = key_head * p.group; head < (key_head + 1) * p.group; ++head) {
    const std::int64_t end_panel = ceil_div(p.end_query(first + keys - 1), kPanel);
    for (std::int64_t panel = p.first_query(first) / kPanel; panel < end_panel; ++panel) {
      Meeting m{.head = head,
                .panel = panel,
                .first_key = first,
                .first_query = panel * kPanel,
                .is_first = block == b.first_block(panel)};
      m.queries = std::min(kPanel, p.queries - m.first_query);
      const std::int64_t end = p.visible(m.first_query + m.queries - 1);
      m.keys = std::min(keys, end - first);
      m.is_last = end <= first + keys;
      meet(products, b, s, m, keys, block);
    }
  }
  scale_all(s.dk, keys * s.ldo, p.scale);
  write_rows(b.dk, key_head, first, keys, p.width, s.dk, s.ldo);
  write_rows(b.dv, key_head, first, keys, p.width, s.dv, s.ldo);
}

// --- the call ----------------------------------------------------------------------------------

constexpr std::int64_t kMostWidth = 256;

void find_inner_products(const KernelCall& call, const Backward& b) {
  const std::int64_t width = b.p.width;
  for_rows(call, b.p.heads * b.p.queries, width, [&](std::int64_t row) {
    alignas(64) float dy[kMostWidth], y[kMostWidth];
    const std::int64_t head = row / b.p.queries, query = row % b.p.queries;
    to_floats(b.dy.at(head, query), b.dy.dtype, 1, width, dy);
    to_floats(b.y.at(head, query), b.y.dtype, 1, width, y);
    b.inner[row] =
        sum_of(functors::Mul(), width, static_cast<const float*>(dy), static_cast<const float*>(y));
  });
}

// From this lse on, its rounding shows in the weights: they are then summed once beforehand, and
// lse is corrected so that they sum to 1.
constexpr float kLargeLse = 256.0f;

template <class P>
void find_missing(P products, const Backward& b, Meeting m, float* scratch) {
  const AttentionProblem& p = b.p;
  const std::int64_t at = m.head * p.queries + m.first_query;
  std::fill_n(b.missing + at, m.queries, 0.0f);
  if (std::none_of(b.lse + at, b.lse + at + m.queries,
                   [](float lse) { return std::abs(lse) > kLargeLse; })) {
    return;
  }
  const Scratch s(scratch, p.width, b.block);
  pack_panel(products, b, s, m);
  const std::int64_t columns = columns_of(m);
  const std::int64_t end = p.visible(m.first_query + m.queries - 1);
  std::fill_n(s.inner, kPanel, 0.0f);  // used for the sums: dy·y is not needed here
  for (m.first_key = b.first_block(m.panel) * b.block; m.first_key < end; m.first_key += b.block) {
    m.keys = std::min(b.block, end - m.first_key);
    products.pack_rows(b.k.rows<typename P::T>(m.head / p.group, m.first_key), b.k.row_stride,
                       m.keys, p.width, s.k);
    const Sight sight = m.sight(p);
    products.score(sight, columns, p.width, score_scale(b), s.k, s.q, s.weights);
    cap_panel(sight, columns, s.weights);
    for (std::int64_t j = 0; j < m.keys; ++j) {
      float* row = s.weights + j * kPanel;
      const std::int64_t hidden = sight.columns_before(j);
      std::fill_n(row, hidden, -kInfinity);
      std::fill(row + sight.columns_until(j), row + kPanel, -kInfinity);
      for (std::int64_t c = hidden / kLanes * kLanes; c < columns; c += kLanes) {
        const V weight = exp2((load(row + c) - load(s.lse + c)) - load(s.lse_rest + c));
        store(load(s.inner + c) + weight, s.inner + c);
      }
    }
  }
  for (std::int64_t i = 0; i < m.queries; ++i) {
    if (s.inner[i] > 0.0f) b.missing[at + i] = std::log2(s.inner[i]);
  }
}

void write_zeros(const KernelCall& call) {
  for (const TensorRef& out : call.outputs) {
    if (out.data == nullptr) continue;
    const Operand y(out);
    for_runs(y, 0, out.count(), [&](const std::byte* p, std::int64_t stride, std::int64_t count) {
      auto* row = out.as<std::byte>() + (p - y.data);
      for (std::int64_t i = 0; i < count; ++i) {
        std::memset(row + i * stride * y.element_bytes, 0,
                    static_cast<std::size_t>(y.element_bytes));
      }
    });
  }
}

void flash_attention_grad_kernel(const KernelCall& call) {
  const Backward b(call);
  if (b.p.heads * b.p.queries * b.p.keys == 0) return write_zeros(call);
  find_inner_products(call, b);
  for_chunks(call, b.p.heads * b.panels, [&](std::int64_t chunk, int thread) {
    Meeting m{.head = chunk / b.panels, .panel = chunk % b.panels};
    m.first_query = m.panel * kPanel;
    m.queries = std::min(kPanel, b.p.queries - m.first_query);
    const Backward of = b.of_head(m.head);
    with_products(b, [&](auto products) { find_missing(products, of, m, b.own(thread)); });
  });
  for (std::int64_t head = 0; head < b.p.heads; ++head) {
    const Backward of = b.of_head(head);
    for (std::int64_t i = 0; i < b.panels; ++i) {
      b.turns[head * b.panels + i] = static_cast<std::int32_t>(of.first_block(i));
    }
  }
  // Blocks of the first keys, which most queries see, come first. Blocks of one head are far apart
  // if heads of keys are many, and follow each other through the panels if heads are few.
  const std::int64_t blocks = ceil_div(b.p.keys, b.block);
  for_chunks(call, blocks * b.p.key_heads, [&](std::int64_t chunk, int thread) {
    const std::int64_t key_head = chunk % b.p.key_heads, block = chunk / b.p.key_heads;
    const Backward of = b.of_head(key_head * b.p.group);
    with_products(b,
                  [&](auto products) { run_block(products, of, key_head, block, b.own(thread)); });
  });
}

constexpr NamedKernel kFlashAttentionGrad[] = {
    {"flash_attention_grad", flash_attention_grad_kernel}};

}  // namespace

std::span<const NamedKernel> flash_attention_grad_kernels() {
  return kFlashAttentionGrad;
}

}  // namespace tracestep::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tracestep::cpu {

HWY_EXPORT(flash_attention_grad_kernels);

void add_flash_attention_grad_kernels(KernelTable& table) {
  for (const NamedKernel& k : HWY_DYNAMIC_DISPATCH(flash_attention_grad_kernels)()) {
    table.add(k.op, k.kernel);
  }
}

}  // namespace tracestep::cpu
#endif
