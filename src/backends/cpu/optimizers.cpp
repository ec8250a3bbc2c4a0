// AdamW in one pass: four streams in, three out (four where a narrow copy is kept), usually in
// place; and its stochastic rounding alone.
#include <algorithm>
#include <array>

#include "backends/cpu/kernels.h"
#include "backends/cpu/numbers.h"
#include "backends/cpu/targets.h"
#include "ops/adamw_groups.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/optimizers.cpp"
#include <hwy/foreach_target.h>

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include "backends/cpu/updates-inl.h"

HWY_BEFORE_NAMESPACE();

namespace tracestep::cpu::HWY_NAMESPACE {
namespace {

// A tensor to update. `shadow` gets the new p in a narrower dtype; without data there is none.
struct Tensor {
  const TensorRef &p, &g, &m, &v;
  std::array<TensorRef, 3> results;  // p, m, v; each may share the old one's memory
  bool rounds = false;               // m and v, at random
  TensorRef shadow = {};

  bool rounds_weight(const Factors& f) const { return f.rounds_weight && p.dtype == DType::kBF16; }
};

struct Streams {
  const float *p, *g, *m, *v;
  float *p_new, *m_new, *v_new;  // each may be the old one
};

// How many elements ahead the four streams are prefetched: what the hardware prefetches by itself
// stops at a page's end.
constexpr std::int64_t kAhead = 512;

template <bool kRounds, bool kRoundsWeight>
void update_tile(const Factors& f, std::int64_t n, const Streams& s) {
  const auto update = [&](V p, V g, V m, V v) HWY_ATTR {
    auto r = updated(f, p, g, m, v);
    if constexpr (kRounds || kRoundsWeight) {
      const U noise = noise_of(f, p, g);
      if constexpr (kRounds) {
        r.m = functors::StochasticRound()(r.m, noise);
        r.v = functors::StochasticRound()(r.v, noise >> 16);
      }
      if constexpr (kRoundsWeight) r.parameter = rounded_weight(r.parameter, noise);
    }
    return r;
  };
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (const float* stream : {s.p, s.g, s.m, s.v}) hwy::Prefetch(stream + i + kAhead);
    const auto r = update(load(s.p + i), load(s.g + i), load(s.m + i), load(s.v + i));
    store(r.parameter, s.p_new + i);
    store(r.m, s.m_new + i);
    store(r.v, s.v_new + i);
  }
  if (i == n) return;
  const std::int64_t rest = n - i;
  const auto r = update(load_n(s.p + i, rest), load_n(s.g + i, rest), load_n(s.m + i, rest),
                        load_n(s.v + i, rest));
  store_n(r.parameter, s.p_new + i, rest);
  store_n(r.m, s.m_new + i, rest);
  store_n(r.v, s.v_new + i, rest);
}

// Copies old values to results with storage of their own, as the step is not applied.
void keep_tile(std::int64_t n, const Streams& s) {
  const auto keep = [n](const float* from, float* to) {
    if (from != to) std::copy(from, from + n, to);
  };
  keep(s.p, s.p_new);
  keep(s.m, s.m_new);
  keep(s.v, s.v_new);
}

void update_tensor(const KernelCall& call, const Tensor& tensor, const Factors& factors,
                   bool apply) {
  const Operand p(tensor.p), g(tensor.g), m(tensor.m), v(tensor.v);
  const bool rounds_weight = tensor.rounds_weight(factors);
  for_tiles(call, tensor.p.count(), [&](std::int64_t begin, std::int64_t n) {
    Tile p_tile, g_tile, m_tile, v_tile, out[3];
    float* to[3];
    for (std::size_t i = 0; i < 3; ++i) {
      const TensorRef& result = tensor.results[i];
      to[i] = result.data != nullptr ? destination(result, begin, out[i]) : out[i].data;
    }
    const Streams streams{read(p, begin, n, p_tile),
                          read(g, begin, n, g_tile),
                          read(m, begin, n, m_tile),
                          read(v, begin, n, v_tile),
                          to[0],
                          to[1],
                          to[2]};
    if (!apply) {
      keep_tile(n, streams);
    } else if (tensor.rounds) {
      rounds_weight ? update_tile<true, true>(factors, n, streams)
                    : update_tile<true, false>(factors, n, streams);
    } else {
      rounds_weight ? update_tile<false, true>(factors, n, streams)
                    : update_tile<false, false>(factors, n, streams);
    }
    for (std::size_t i = 0; i < 3; ++i) {
      if (tensor.results[i].data != nullptr) finish(tensor.results[i], begin, n, out[i]);
    }
    if (tensor.shadow.data == nullptr) return;
    const auto offset = begin * static_cast<std::int64_t>(size_of(tensor.shadow.dtype));
    from_floats(to[0], n, tensor.shadow.dtype, tensor.shadow.as<std::byte>() + offset);
  });
}

void adamw_kernel(const KernelCall& call) {
  const auto in = call.inputs, out = call.outputs;
  const TensorRef* scale = in.size() > 6 ? &in[6] : nullptr;
  const TensorRef* apply = in.size() > 7 ? &in[7] : nullptr;
  const TensorRef* count = in.size() > 8 ? &in[8] : nullptr;
  const bool rounds = count != nullptr && in[2].dtype == DType::kBF16;
  update_tensor(call, {in[0], in[1], in[2], in[3], {out[0], out[1], out[2]}, rounds},
                factors_of(call, in[4], in[5], scale, count), applies(apply));
}

void multi_adamw_kernel(const KernelCall& call) {
  const auto in = call.inputs, out = call.outputs;
  const AdamwGroups groups = adamw_groups(call.attrs, in.size());
  const TensorRef* scale = groups.scaled ? &in[groups.scale()] : nullptr;
  const bool apply = applies(groups.guarded ? &in[groups.apply()] : nullptr);
  const TensorRef* count = groups.counted ? &in[groups.step_count()] : nullptr;
  const Factors factors = factors_of(call, in[0], in[1], scale, count);
  for (std::size_t t = 0; t < groups.count; ++t) {
    const std::size_t p = groups.first_input(t), to = groups.first_output(t);
    const bool rounds = groups.counted && in[p + 2].dtype == DType::kBF16;
    Tensor tensor{in[p], in[p + 1], in[p + 2], in[p + 3], {out[to], out[to + 1], out[to + 2]},
                  rounds};
    if (groups.shadowed) tensor.shadow = out[to + 3];
    update_tensor(call, tensor, factors, apply);
  }
}

void stochastic_round_kernel(const KernelCall& call) {
  const Operand x(call.inputs[0]), weight(call.inputs[1]), gradient(call.inputs[2]);
  const TensorRef& y = call.outputs[0];
  const int shift = call.attrs.flag("upper") ? 16 : 0;
  const bool of_weight = call.attrs.flag("of_weight");
  const float step = scalar_of(call.inputs[3]);
  const auto round = [&](V value, V w, V g) HWY_ATTR {
    const U own = functors::RoundingNoise()(bits(splat(step)), bits(w), bits(g));
    const U noise = of_weight ? functors::WeightNoise()(own) : own;
    return y.dtype == DType::kBF16 ? functors::StochasticRound()(value, noise >> shift) : value;
  };
  for_tiles(call, y.count(), [&](std::int64_t begin, std::int64_t n) {
    Tile x_tile, weight_tile, gradient_tile, out;
    map(round, n, destination(y, begin, out), read(x, begin, n, x_tile),
        read(weight, begin, n, weight_tile), read(gradient, begin, n, gradient_tile));
    finish(y, begin, n, out);
  });
}

constexpr NamedKernel kOptimizers[] = {{"adamw", adamw_kernel},
                                       {"multi_adamw", multi_adamw_kernel},
                                       {"stochastic_round", stochastic_round_kernel}};

}  // namespace

std::span<const NamedKernel> optimizer_kernels() {
  return kOptimizers;
}

}  // namespace tracestep::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tracestep::cpu {

HWY_EXPORT(optimizer_kernels);

void add_optimizer_kernels(KernelTable& table) {
  for (const NamedKernel& k : HWY_DYNAMIC_DISPATCH(optimizer_kernels)()) table.add(k.op, k.kernel);
}

}  // namespace tracestep::cpu
#endif
