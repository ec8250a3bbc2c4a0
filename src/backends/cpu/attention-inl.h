// Products of attention tiles. A panel holds scores of a stretch of keys (its rows) and kPanel
// queries (its columns): a lane belongs to one query, so nothing is summed across lanes.
#if defined(TRACESTEP_BACKENDS_CPU_ATTENTION_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TRACESTEP_BACKENDS_CPU_ATTENTION_INL_H
#undef TRACESTEP_BACKENDS_CPU_ATTENTION_INL_H
#else
#define TRACESTEP_BACKENDS_CPU_ATTENTION_INL_H
#endif

#include "backends/cpu/attention_heads.h"
#include "backends/cpu/gemm-inl.h"
#include "base/integers.h"
#include "planning/cpu_plans.h"

HWY_BEFORE_NAMESPACE();
namespace tracestep::cpu::HWY_NAMESPACE {

// How many queries a panel has: a multiple of the rows, and of the columns, of a register tile.
constexpr std::int64_t kPanel = HWY_TARGET == HWY_AVX3 ? 224 : 48;
static_assert(kPanel % kRows == 0 && kPanel % kColumns == 0);
static_assert(kPanel >= AttentionPlan::kLeastPanel && kPanel <= AttentionPlan::kQueries);
static_assert(kRows <= AttentionPlan::kTallestStrip && kColumns <= AttentionPlan::kWidestStrip);

constexpr std::int64_t kAligned = AttentionPlan::kAligned;
// Returns 2^x within 8e-8 for x <= 126, at least 2^-126, NaN for NaN: x = n + r, a polynomial of
// degree 6 in r (error 2e-9), and n added to the exponent bits. Scores are in units of log 2.
HWY_INLINE V exp2(V x) {
  const D d;
  const DU du;
  const auto shifter = hn::Set(d, 0x1.8p23f);
  const auto at_least = hn::Max(hn::Set(d, -126.0f), x.v);  // the second of two where one is NaN
  const auto shifted = hn::Add(at_least, shifter);
  const auto r = hn::Sub(at_least, hn::Sub(shifted, shifter));
  auto q = hn::MulAdd(hn::Set(d, 0x1.41fbbep-13f), r, hn::Set(d, 0x1.5f3e54p-10f));
  q = hn::MulAdd(q, r, hn::Set(d, 0x1.3b2d4cp-7f));
  q = hn::MulAdd(q, r, hn::Set(d, 0x1.c6aee8p-5f));
  q = hn::MulAdd(q, r, hn::Set(d, 0x1.ebfbdcp-3f));
  q = hn::MulAdd(q, r, hn::Set(d, 0x1.62e430p-1f));
  q = hn::MulAdd(q, r, hn::Set(d, 1.0f));
  const auto exponent = hn::ShiftLeft<23>(hn::BitCast(du, shifted));
  return {hn::BitCast(d, hn::Add(hn::BitCast(du, q), exponent))};
}
constexpr double kLn2 = 0.6931471805599453;

// Returns cap · tanh(score / cap), by an exponential; a score beyond 40 caps is the cap.
HWY_INLINE V capped(V score, float cap) {
  const D d;
  const auto twice = hn::Mul(score.v, hn::Set(d, static_cast<float>(2.0 * kLog2E) / cap));
  const auto bounded = hn::Min(hn::Max(twice, hn::Set(d, -120.0f)), hn::Set(d, 120.0f));
  const V e = exp2({bounded}), one = splat(1.0f);
  return splat(cap) * ((e - one) / (e + one));
}

// Functors for the new value of row r of a result: `row` is its old value, `x` a new sum.
struct AddTo {
  HWY_INLINE V operator()(std::int64_t, V x, const float* row) const { return load(row) + x; }
};
struct AddScaled {
  float scale;
  HWY_INLINE V operator()(std::int64_t, V x, const float* row) const {
    return {hn::MulAdd(x.v, hn::Set(D(), scale), load(row).v)};
  }
};
struct SetScaled {
  float scale;
  HWY_INLINE V operator()(std::int64_t, V x, const float*) const { return x * splat(scale); }
};
struct Rescaled {  // the rows so far, each times its own factor
  const float* factors;
  HWY_INLINE V operator()(std::int64_t r, V x, const float* row) const {
    return {hn::MulAdd(load(row).v, hn::Set(D(), factors[r]), x.v)};
  }
};

// Sets c[kRows, kColumns] by `finish` from old rows and Σ_k a(r, k) b(k, ·), where a is a panel
// with element (r, k) at r · kStrideR + k · kStrideK, and b a packed strip.
template <std::int64_t kStrideR, std::int64_t kStrideK, class Finish>
HWY_NOINLINE void panel_kernel(std::int64_t k, const float* HWY_RESTRICT a,
                               const float* HWY_RESTRICT b, float* HWY_RESTRICT c, std::int64_t ldc,
                               Finish finish) {
  hn::Vec<D> acc[kRows][2];
  multiply_tile<Floats, kRows, kStrideR, kStrideK>(k, a, b, c, ldc, acc);
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
    float* row = c + r * ldc;
    store(finish(r, {acc[r][0]}, row), row);
    store(finish(r, {acc[r][1]}, row + kLanes), row + kLanes);
  }
}

// Which keys of a tile, from first_key on, the queries of a panel see; the panel's column 0 is
// query first_query. Products skip what is hidden, as far as whole register tiles allow.
struct Sight {
  const AttentionProblem& p;
  std::int64_t first_key = 0, keys = 0, first_query = 0;

  // Returns the end of the keys that column end - 1 sees; no earlier column sees keys beyond it.
  std::int64_t keys_until(std::int64_t end) const {
    return std::clamp<std::int64_t>(p.visible(first_query + end - 1) - first_key, 0, keys);
  }
  // Return how many columns are before those that see key `key`, and the end of those that see it.
  std::int64_t columns_before(std::int64_t key) const {
    return std::clamp<std::int64_t>(p.first_query(first_key + key) - first_query, 0, kPanel);
  }
  std::int64_t columns_until(std::int64_t key) const {
    if (!p.has_window()) return kPanel;
    return std::clamp<std::int64_t>(p.end_query(first_key + key) - first_query, 0, kPanel);
  }
};

// Computes panel[keys, queries] = keys (packed strips of kRows) times queries (packed strips of
// kColumns), `width` deep, in whole register tiles. Hidden elements may stay as they are.
HWY_INLINE void score_panel(const Sight& sight, std::int64_t queries, std::int64_t width,
                            const float* packed_keys, const float* packed_queries, float* panel) {
  for (std::int64_t c = 0; c < queries; c += kColumns) {
    const std::int64_t keys = sight.keys_until(c + kColumns);
    for (std::int64_t r = 0; r < keys; r += kRows) {
      micro_kernel<false, kRows>(width, packed_keys + r * width, packed_queries + c * width,
                                 panel + r * kPanel + c, kPanel);
    }
  }
}

// Caps the scores that score_panel() computed.
HWY_INLINE void cap_panel(const Sight& sight, std::int64_t queries, float* panel) {
  const float cap = sight.p.cap;
  if (cap == 0.0f) return;
  for (std::int64_t j = 0; j < sight.keys; ++j) {
    float* row = panel + j * kPanel;
    map([=](V score) HWY_ATTR { return capped(score, cap); }, queries, row,
        static_cast<const float*>(row));
  }
}

// Packs rows [T, width] at any row stride into strips of kWidth rows, as both operands of scores
// need them.
template <std::int64_t kWidth, class T>
HWY_INLINE void pack_across(const T* rows, std::int64_t stride, std::int64_t count,
                            std::int64_t width, float* dst) {
  pack<kWidth>(rows, stride, 1, count, width, dst);
}
// Packs rows as strips of kColumns of their columns, the second operand of products with panels.
template <class T>
HWY_INLINE void pack_along(const T* rows, std::int64_t stride, std::int64_t count,
                           std::int64_t width, float* dst) {
  pack<kColumns>(rows, 1, stride, width, count, dst);
}

HWY_INLINE void scale_all(float* x, std::int64_t n, float scale) {
  map([=](V v) HWY_ATTR { return v * splat(scale); }, n, x, static_cast<const float*>(x));
}

// Calls f with a value of the type in which a dtype is stored.
template <class F>
HWY_INLINE void with_type(DType dtype, const F& f) {
  switch (dtype) {
    case DType::kBF16: f(BF16()); break;
    case DType::kF16: f(F16()); break;
    default: f(0.0f); break;
  }
}

}  // namespace tracestep::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // TRACESTEP_BACKENDS_CPU_ATTENTION_INL_H
