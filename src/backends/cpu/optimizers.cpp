// AdamW in one pass: four streams in, three out, usually in place.
#include <algorithm>

#include "backends/cpu/kernels.h"
#include "backends/cpu/numbers.h"
#include "backends/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/optimizers.cpp"
#include <hwy/foreach_target.h>

#include <hwy/highway.h>

#include "backends/cpu/tiles-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tracestep::cpu::HWY_NAMESPACE {
namespace {

struct Factors {
  float decay, step_size, grad_scale, beta1, beta2, eps;
};

Factors factors_of(const KernelCall& call) {
  const Attrs& attrs = call.node.attrs;
  const float lr = scalar_of(call.inputs[4]);
  return {.decay = lr * static_cast<float>(-attrs.real("weight_decay")) + 1.0f,
          .step_size = scalar_of(call.inputs[5]),
          .grad_scale = call.inputs.size() > 6 ? scalar_of(call.inputs[6]) : 1.0f,
          .beta1 = static_cast<float>(attrs.real("beta1")),
          .beta2 = static_cast<float>(attrs.real("beta2")),
          .eps = static_cast<float>(attrs.real("eps"))};
}

struct Streams {
  const float *p, *g, *m, *v;
  float *p_new, *m_new, *v_new;  // each may be its old self
};

void update_tile(const Factors& f, std::int64_t n, const Streams& s) {
  const auto update = [&](V p, V g, V m, V v) HWY_ATTR {
    return functors::Adamw()(p, g * splat(f.grad_scale), m, v, splat(f.decay), splat(f.step_size),
                             splat(f.beta1), splat(f.beta2), splat(f.eps));
  };
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
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

// A step that is not applied: the old values, also where the results have storage of their own.
void keep_tile(std::int64_t n, const Streams& s) {
  const auto keep = [n](const float* from, float* to) {
    if (from != to) std::copy(from, from + n, to);
  };
  keep(s.p, s.p_new);
  keep(s.m, s.m_new);
  keep(s.v, s.v_new);
}

void adamw_kernel(const KernelCall& call) {
  const Operand p(call.inputs[0]), g(call.inputs[1]), m(call.inputs[2]), v(call.inputs[3]);
  const Factors factors = factors_of(call);
  const bool apply = call.inputs.size() <= 7 || *call.inputs[7].as<const std::uint8_t>() != 0;
  const auto results = call.outputs;
  for_tiles(call, call.inputs[0].count(), [&](std::int64_t begin, std::int64_t n) {
    Tile p_tile, g_tile, m_tile, v_tile, out[3];
    float* to[3];
    for (std::size_t i = 0; i < 3; ++i) {
      to[i] = results[i].data != nullptr ? destination(results[i], begin, out[i]) : out[i].data;
    }
    const Streams streams{read(p, begin, n, p_tile),
                          read(g, begin, n, g_tile),
                          read(m, begin, n, m_tile),
                          read(v, begin, n, v_tile),
                          to[0],
                          to[1],
                          to[2]};
    if (apply) {
      update_tile(factors, n, streams);
    } else {
      keep_tile(n, streams);
    }
    for (std::size_t i = 0; i < 3; ++i) {
      if (results[i].data != nullptr) finish(results[i], begin, n, out[i]);
    }
  });
}

constexpr NamedKernel kOptimizers[] = {{"adamw", adamw_kernel}};

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
