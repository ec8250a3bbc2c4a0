// Elementwise arithmetic on floating-point tensors: the shared functors over tiles of vectors.
#include "backends/cpu/integers.h"
#include "backends/cpu/kernels.h"
#include "backends/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/elementwise.cpp"
#include <hwy/foreach_target.h>

#include <hwy/highway.h>

#include "backends/cpu/tiles-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tracestep::cpu::HWY_NAMESPACE {
namespace {

template <class F>
void unary(const KernelCall& call, F f) {
  const Operand x(call.inputs[0]);
  const TensorRef& y = call.outputs[0];
  for_tiles(call, y.count(), [&](std::int64_t begin, std::int64_t n) {
    Tile x_tile, y_tile;
    const float* a = read(x, begin, n, x_tile);
    map(f, n, destination(y, begin, y_tile), a);
    finish(y, begin, n, y_tile);
  });
}

template <class F>
void unary_kernel(const KernelCall& call) {
  unary(call, F());
}

void affine_kernel(const KernelCall& call) {
  const float scale = static_cast<float>(call.attrs.real("scale"));
  const float shift = static_cast<float>(call.attrs.real("shift"));
  unary(call, [=](V x) HWY_ATTR { return functors::Affine()(x, splat(scale), splat(shift)); });
}

template <class F>
void binary_kernel(const KernelCall& call) {
  if (!is_floating(call.inputs[0].dtype)) return integer_elementwise(call);
  const Operand a(call.inputs[0]), b(call.inputs[1]);
  const TensorRef& y = call.outputs[0];
  for_tiles(call, y.count(), [&](std::int64_t begin, std::int64_t n) {
    Tile a_tile, b_tile, y_tile;
    const float* av = read(a, begin, n, a_tile);
    const float* bv = read(b, begin, n, b_tile);
    map(F(), n, destination(y, begin, y_tile), av, bv);
    finish(y, begin, n, y_tile);
  });
}

template <class F>
void compare_kernel(const KernelCall& call) {
  if (!is_floating(call.inputs[0].dtype)) return integer_elementwise(call);
  const Operand a(call.inputs[0]), b(call.inputs[1]);
  const TensorRef& y = call.outputs[0];
  for_tiles(call, y.count(), [&](std::int64_t begin, std::int64_t n) {
    Tile a_tile, b_tile, truth;
    const float* av = read(a, begin, n, a_tile);
    const float* bv = read(b, begin, n, b_tile);
    const auto as_number = [](V p, V q)
                               HWY_ATTR { return select(F()(p, q), splat(1.0f), splat(0.0f)); };
    map(as_number, n, truth.data, av, bv);
    auto* out = y.as<std::uint8_t>() + begin;
    for (std::int64_t i = 0; i < n; ++i) out[i] = truth.data[i] != 0.0f;
  });
}

// Computes both gradients of swiglu for a tile; dgate and dup may be the storage of gate and up.
HWY_INLINE void swiglu_grad_tile(std::int64_t n, const float* dy, const float* gate,
                                 const float* up, float* dgate, float* dup) {
  const auto step = [&](V g, V x, V u, std::int64_t i, std::int64_t count) HWY_ATTR {
    const V a = functors::SiluGrad()(g * u, x);
    const V b = g * functors::Silu()(x);
    if (count == kLanes) {
      if (dgate != nullptr) store(a, dgate + i);
      if (dup != nullptr) store(b, dup + i);
    } else {
      if (dgate != nullptr) store_n(a, dgate + i, count);
      if (dup != nullptr) store_n(b, dup + i, count);
    }
  };
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    step(load(dy + i), load(gate + i), load(up + i), i, kLanes);
  }
  if (i < n) {
    step(load_n(dy + i, n - i), load_n(gate + i, n - i), load_n(up + i, n - i), i, n - i);
  }
}

void swiglu_grad_kernel(const KernelCall& call) {
  const Operand dy(call.inputs[0]), gate(call.inputs[1]), up(call.inputs[2]);
  const StridedResult dgate(call.outputs[0]), dup(call.outputs[1]);
  for_tiles(call, call.inputs[0].count(), [&](std::int64_t begin, std::int64_t n) {
    Tile dy_tile, gate_tile, up_tile, dgate_tile, dup_tile;
    const float* dyv = read(dy, begin, n, dy_tile);
    const float* gv = read(gate, begin, n, gate_tile);
    const float* uv = read(up, begin, n, up_tile);
    float* a = dgate ? dgate.destination(begin, dgate_tile) : nullptr;
    float* b = dup ? dup.destination(begin, dup_tile) : nullptr;
    swiglu_grad_tile(n, dyv, gv, uv, a, b);
    if (dgate) dgate.finish(begin, n, dgate_tile);
    if (dup) dup.finish(begin, n, dup_tile);
  });
}

constexpr NamedKernel kElementwise[] = {
#define TRACESTEP_UNARY_ENTRY(name, functor) {#name, unary_kernel<functors::functor>},
    TRACESTEP_UNARY_OPS(TRACESTEP_UNARY_ENTRY)
#define TRACESTEP_BINARY_ENTRY(name, functor) {#name, binary_kernel<functors::functor>},
        TRACESTEP_BINARY_OPS(TRACESTEP_BINARY_ENTRY)
            TRACESTEP_FLOATING_BINARY_OPS(TRACESTEP_BINARY_ENTRY)
#define TRACESTEP_COMPARE_ENTRY(name, functor) {#name, compare_kernel<functors::functor>},
                TRACESTEP_COMPARE_OPS(TRACESTEP_COMPARE_ENTRY){"affine", affine_kernel},
    {"swiglu_grad", swiglu_grad_kernel}};

}  // namespace

std::span<const NamedKernel> elementwise_kernels() {
  return kElementwise;
}

}  // namespace tracestep::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tracestep::cpu {

HWY_EXPORT(elementwise_kernels);

void add_elementwise_kernels(KernelTable& table) {
  for (const NamedKernel& k : HWY_DYNAMIC_DISPATCH(elementwise_kernels)())
    table.add(k.op, k.kernel);
}

}  // namespace tracestep::cpu
#endif
