// flash_attention: a tile of queries stays in L2 while the tiles of keys and values are read;
// scores exist for one panel at a time. A row keeps its running maximum, sum and result, as in Dao
// 2023, alg. 1. The order of operations in a row depends neither on the threads nor on the tiles.
#include <cmath>
#include <cstring>
#include <limits>

#include "backends/cpu/bf16_products.h"
#include "backends/cpu/kernels.h"
#include "backends/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/flash_attention.cpp"
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
constexpr std::int64_t kKeyTile = round_up(AttentionPlan::kKeys, kRows);
constexpr std::int64_t kMostQueries = std::max<std::int64_t>(1, 192 / kPanel) * kPanel;

struct Forward {
  AttentionProblem p;
  Heads q, k, v, y;
  float* lse;  // [heads, queries], or nullptr

  explicit Forward(const KernelCall& call)
      : p(call, 0),
        q(call.inputs[0], false),
        k(call.inputs[1], false),
        v(call.inputs[2], false),
        y(call.outputs[0], p.token_major),
        lse(call.outputs[1].as<float>()) {}

  // Returns how many queries a tile has; all tiles have about as many.
  std::int64_t tile() const {
    const std::int64_t tiles = ceil_div(p.queries, kMostQueries);
    return round_up((p.queries + tiles - 1) / tiles, kPanel);
  }
};

// The buffers of one thread.
struct Scratch {
  std::int64_t ldo;  // of the results
  float *q, *k, *v, *panel, *o, *top, *sum, *factor;

  Scratch(float* at, std::int64_t width) : ldo(round_up(width, kColumns)) {
    const auto take = [&at](std::int64_t n) {
      float* out = at;
      at += round_up(n, kAligned);
      return out;
    };
    q = take(kMostQueries * width);
    o = take(kMostQueries * ldo);
    k = take(kKeyTile * width);
    v = take(kKeyTile * ldo);
    panel = take(kKeyTile * kPanel);
    top = take(kMostQueries);
    sum = take(kMostQueries);
    factor = take(kPanel);
  }
};

// Turns scores into 2^(score - maximum) and adds them to `sum`; `factor` rescales earlier sums.
HWY_NOINLINE void add_scores(const Sight& sight, std::int64_t queries, float* panel, float* top,
                             float* sum, float* factor) {
  const D d;
  for (std::int64_t c = 0; c < queries; c += kLanes) {
    const std::int64_t keys = sight.keys_until(c + kLanes);
    float* column = panel + c;
    const V before = load(top + c);
    auto m0 = before.v, m1 = before.v;
    std::int64_t j = 0;
    for (; j + 2 <= keys; j += 2) {
      m0 = hn::Max(m0, hn::LoadU(d, column + j * kPanel));
      m1 = hn::Max(m1, hn::LoadU(d, column + (j + 1) * kPanel));
    }
    if (j < keys) m0 = hn::Max(m0, hn::LoadU(d, column + j * kPanel));
    const V now{hn::Max(m0, m1)};
    V total = splat(0.0f);
    for (j = 0; j < keys; ++j) {
      const V e = exp2(load(column + j * kPanel) - now);
      store(e, column + j * kPanel);
      total = total + e;
    }
    const V f = exp2(before - now);
    store(now, top + c);
    store(f, factor + c);
    store(load(sum + c) * f + total, sum + c);
  }
}

// Sets elements of a panel to `value` where the query does not see the key, or sees it no more.
void hide(const Sight& sight, float value, float* panel) {
  for (std::int64_t j = 0; j < sight.keys; ++j) {
    float* row = panel + j * kPanel;
    std::fill_n(row, sight.columns_before(j), value);
    std::fill(row + sight.columns_until(j), row + kPanel, value);
  }
}

// Turns a panel's scores into weights, 0 where hidden, for `queries` queries, which begin at query
// `at` of the tile.
void weigh(const Sight& sight, std::int64_t queries, std::int64_t columns, const Scratch& s,
           std::int64_t at) {
  const AttentionProblem& p = sight.p;
  const std::int64_t first = sight.first_query, end_key = sight.first_key + sight.keys;
  cap_panel(sight, columns, s.panel);
  const bool hides =
      p.visible(first) < end_key || p.first_visible(first + queries - 1) > sight.first_key;
  if (hides) hide(sight, -kInfinity, s.panel);
  add_scores(sight, columns, s.panel, s.top + at, s.sum + at, s.factor);
  // exp2 gave hidden keys 2^-126; their weight must be 0.
  if (hides) hide(sight, 0.0f, s.panel);
}

// Adds a packed tile of keys and values to the results of queries first, first + 1, … of a panel.
void add_tile(const AttentionProblem& p, const Scratch& s, std::int64_t first_key,
              std::int64_t keys, std::int64_t first, std::int64_t at, std::int64_t queries) {
  const std::int64_t seen = std::min(keys, p.visible(first + queries - 1) - first_key);
  if (seen <= 0 || p.first_visible(first) >= first_key + seen) return;
  const Sight sight{p, first_key, seen, first};
  const std::int64_t rows = round_up(queries, kRows), columns = round_up(rows, kColumns);
  score_panel(sight, columns, p.width, s.k, s.q + at * p.width, s.panel);
  weigh(sight, queries, columns, s, at);
  for (std::int64_t d = 0; d < s.ldo; d += kColumns) {
    for (std::int64_t r = 0; r < rows; r += kRows) {
      panel_kernel<1, kPanel>(sight.keys_until(r + kRows), s.panel + r, s.v + d * keys,
                              s.o + (at + r) * s.ldo + d, s.ldo, Rescaled{s.factor + r});
    }
  }
}

void begin_rows(const AttentionProblem& p, const Scratch& s, std::int64_t count) {
  // A window may begin after a tile: its rows have no maximum then, but must not become NaN.
  std::fill_n(s.top, count, p.has_window() ? std::numeric_limits<float>::lowest() : -kInfinity);
  std::fill_n(s.sum, count, 0.0f);
}

// Divides `rows` by their sums and writes them as rows [begin, begin + count) of a tile, with lse.
void finish_rows(const Forward& f, const Scratch& s, float* rows, std::int64_t head,
                 std::int64_t first, std::int64_t begin, std::int64_t count) {
  for (std::int64_t i = begin; i < begin + count; ++i) {
    if (f.lse != nullptr) {
      // Rounded only once: backward computes the weights from this number.
      const double lse =
          kLn2 * static_cast<double>(s.top[i]) + std::log(static_cast<double>(s.sum[i]));
      f.lse[head * f.p.queries + first + i] = static_cast<float>(lse);
    }
    if (!f.y) continue;
    float* row = rows + (i - begin) * s.ldo;
    const V total = splat(s.sum[i]);
    map([=](V x) HWY_ATTR { return x / total; }, s.ldo, row, static_cast<const float*>(row));
    from_floats(row, f.p.width, f.y.dtype, f.y.at(head, first + i));
  }
}

#if HWY_TARGET == HWY_AVX3
// How many keys a tile has if the processor's tiles multiply. Results then stand transposed,
// [width, kPanel], so that weights are multiplied as they stand: a tile of queries is one panel.
constexpr std::int64_t kTiledKeys = 64;
static_assert(kMostQueries == kPanel && kTiledKeys <= kKeyTile);

template <class Tiles>
void add_tile_by_tiles(Tiles& tiles, const AttentionProblem& p, const Scratch& s,
                       std::int64_t first_key, std::int64_t keys, std::int64_t first,
                       std::int64_t queries) {
  const std::int64_t seen = std::min(keys, p.visible(first + queries - 1) - first_key);
  if (seen <= 0 || p.first_visible(first) >= first_key + seen) return;
  const Sight sight{p, first_key, seen, first};
  const std::int64_t columns = round_up(queries, kBlock);
  score_tiles(tiles, sight, columns, p.width, s.k, s.q, s.panel);
  for (std::int64_t j = 0; j < seen; ++j) {
    scale_all(s.panel + j * kPanel, columns, static_cast<float>(p.scale * kLog2E));
  }
  weigh(sight, queries, columns, s, 0);
  alignas(64) float strip[kTiledKeys / 2 * kColumns];
  for (std::int64_t c = 0; c < columns; c += kBlock) {
    const std::int64_t rows = sight.keys_until(c + kBlock);
    join_panel_rows(s.panel + c, rows, strip);
    for (std::int64_t d = 0; d < p.width; d += kBlock) {
      float* out = s.o + d * kPanel + c;
      for (std::int64_t r = 0; r < kBlock; ++r) {
        map([](V x, V factor) HWY_ATTR { return x * factor; }, kBlock, out + r * kPanel,
            static_cast<const float*>(out + r * kPanel), static_cast<const float*>(s.factor + c));
      }
      multiply_tiles<2, 2>(tiles, true, steps_of(rows) / kTilePairs,
                           packed_tiles(s.v + d * steps_of(keys)), strip, out, kPanel);
    }
  }
}

template <class Tiles>
void run_by_tiles(Tiles& tiles, const Forward& f, std::int64_t head, std::int64_t first,
                  float* scratch) {
  const AttentionProblem p = f.p.of_head(head);
  const Scratch s(scratch, p.width);
  const std::int64_t count = std::min(f.tile(), p.queries - first);
  pack_strips_across(f.q.rows<BF16>(head, first), f.q.row_stride, count, p.width, s.q);
  std::fill_n(s.o, p.width * kPanel, 0.0f);
  begin_rows(p, s, kPanel);
  const std::int64_t end = p.visible(first + count - 1);
  for (std::int64_t j = p.first_visible(first) / kTiledKeys * kTiledKeys; j < end;
       j += kTiledKeys) {
    const std::int64_t keys = std::min(kTiledKeys, end - j);
    const BF16* v = f.v.rows<BF16>(head / p.group, j);
    pack_tile_rows(f.k.rows<BF16>(head / p.group, j), f.k.row_stride, 1, keys, p.width, s.k);
    pack_tile_rows(v, 1, f.v.row_stride, p.width, keys, s.v);
    add_tile_by_tiles(tiles, p, s, j, keys, first, count);
  }
  // Results as rows, 16 of them at a time, in place of the panel.
  for (std::int64_t i = 0; i < count; i += kLanes) {
    for (std::int64_t d = 0; d < p.width; d += kLanes) {
      for_transposed(s.o + d * kPanel + i, kPanel,
                     [&](int r, V x) HWY_ATTR { store(x, s.panel + r * s.ldo + d); });
    }
    finish_rows(f, s, s.panel, head, first, i, std::min(kLanes, count - i));
  }
}
#endif

template <class T>
void run_tile(const Forward& f, std::int64_t head, std::int64_t first, float* scratch) {
  const AttentionProblem p = f.p.of_head(head);
  const Scratch s(scratch, p.width);
  const std::int64_t count = std::min(f.tile(), p.queries - first);
  pack_across<kColumns>(f.q.rows<T>(head, first), f.q.row_stride, count, p.width, s.q);
  const std::int64_t packed = round_up(count, kColumns);
  scale_all(s.q, packed * p.width, static_cast<float>(p.scale * kLog2E));
  const std::int64_t whole = round_up(count, kPanel);
  std::fill_n(s.q + packed * p.width, (whole - packed) * p.width, 0.0f);
  std::fill_n(s.o, whole * s.ldo, 0.0f);
  begin_rows(p, s, whole);
  const std::int64_t end = p.visible(first + count - 1);
  for (std::int64_t j = p.first_visible(first) / kKeyTile * kKeyTile; j < end; j += kKeyTile) {
    const std::int64_t keys = std::min(kKeyTile, end - j);
    pack_across<kRows>(f.k.rows<T>(head / p.group, j), f.k.row_stride, keys, p.width, s.k);
    pack_along(f.v.rows<T>(head / p.group, j), f.v.row_stride, keys, p.width, s.v);
    for (std::int64_t at = 0; at < count; at += kPanel) {
      add_tile(p, s, j, keys, first + at, at, std::min(kPanel, count - at));
    }
  }
  finish_rows(f, s, s.o, head, first, 0, count);
}

// Writes the results of a call without keys: y = 0, as there is nothing to average, and lse = -inf.
void write_nothing(const Forward& f, const KernelCall& call) {
  const TensorRef& y = call.outputs[0];
  if (f.y) std::memset(y.data, 0, static_cast<std::size_t>(y.count()) * size_of(y.dtype));
  if (f.lse != nullptr) std::fill_n(f.lse, f.p.heads * f.p.queries, -kInfinity);
}

void flash_attention_kernel(const KernelCall& call) {
  const Forward f(call);
  if (f.p.heads * f.p.queries == 0) return;
  if (f.p.keys == 0) return write_nothing(f, call);
  const AttentionPlan plan = plan_attention({.heads = f.p.heads,
                                             .key_heads = f.p.key_heads,
                                             .queries = f.p.queries,
                                             .keys = f.p.keys,
                                             .width = f.p.width,
                                             .dtype = f.q.dtype});
  auto* scratch = reinterpret_cast<float*>(call.workspace.data());
  [[maybe_unused]] const Bf16Products way = bf16_products();
  const std::int64_t tile = f.tile(), tiles = (f.p.queries + tile - 1) / tile;
  // The last queries see most keys: they come first.
  for_chunks(call, tiles * f.p.heads, [&](std::int64_t chunk, int thread) {
    const std::int64_t head = chunk % f.p.heads;
    const std::int64_t first = (tiles - 1 - chunk / f.p.heads) * tile;
    float* own = scratch + thread * plan.forward_floats_per_thread();
#if HWY_TARGET == HWY_AVX3
    const auto by_tiles = [&](auto& tiles) { run_by_tiles(tiles, f, head, first, own); };
    if (with_tiles(way, f.q.dtype, f.p.width, by_tiles)) return;
#endif
    with_type(f.q.dtype, [&](auto type) { run_tile<decltype(type)>(f, head, first, own); });
  });
}

constexpr NamedKernel kFlashAttention[] = {{"flash_attention", flash_attention_kernel}};

}  // namespace

std::span<const NamedKernel> flash_attention_kernels() {
  return kFlashAttention;
}

}  // namespace tracestep::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tracestep::cpu {

HWY_EXPORT(flash_attention_kernels);

void add_flash_attention_kernels(KernelTable& table) {
  for (const NamedKernel& k : HWY_DYNAMIC_DISPATCH(flash_attention_kernels)()) {
    table.add(k.op, k.kernel);
  }
}

}  // namespace tracestep::cpu
#endif
