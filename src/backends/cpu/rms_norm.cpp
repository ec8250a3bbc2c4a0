// rms_norm and its gradient, a row at a time: the second pass over a row finds it in L1.
#include <cmath>

#include "backends/cpu/kernels.h"
#include "backends/cpu/targets.h"
#include "base/integers.h"
#include "planning/cpu_plans.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/rms_norm.cpp"
#include <hwy/foreach_target.h>

#include <hwy/highway.h>

#include "backends/cpu/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tracestep::cpu::HWY_NAMESPACE {
namespace {

void rms_norm_kernel(const KernelCall& call) {
  const Operand x(call.inputs[0]), w(call.inputs[1]);
  const TensorRef &y = call.outputs[0], &rstd = call.outputs[1];
  const std::int64_t width = call.inputs[0].shape.back();
  if (width == 0) return;
  const double eps = call.attrs.real("eps");
  for_rows(call, call.inputs[0].count() / width, width, [&](std::int64_t row) {
    const std::int64_t begin = row * width;
    double squares = 0;
    for_row_tiles(begin, width, [&](std::int64_t at, std::int64_t n) {
      Tile tile;
      squares += static_cast<double>(sum_of(functors::Square(), n, read(x, at, n, tile)));
    });
    const auto scale =
        static_cast<float>(1.0 / std::sqrt(squares / static_cast<double>(width) + eps));
    if (rstd.data != nullptr) rstd.as<float>()[row] = scale;
    if (y.data == nullptr) return;
    for_row_tiles(begin, width, [&](std::int64_t at, std::int64_t n) {
      Tile x_tile, w_tile, y_tile;
      if (x.dtype == DType::kF32) fetch(reinterpret_cast<const float*>(x.data) + at + width, n);
      map([=](V v, V weight) HWY_ATTR { return weight * (v * splat(scale)); }, n,
          destination(y, at, y_tile), read(x, at, n, x_tile), read(w, at - begin, n, w_tile));
      finish(y, at, n, y_tile);
    });
  });
}

struct GradOperands {
  Operand dy, x, w;
  const float* rstd;
  TensorRef dx;
};

// Adds dw += dy ∘ normed of one row, and writes its dx, which may be the storage of dy. A tile of
// dw is updated before dx is written.
void grad_row(const GradOperands& o, std::int64_t row, std::int64_t width, float* dw) {
  const Operand &dy = o.dy, &x = o.x, &w = o.w;
  const TensorRef& dx = o.dx;
  const V rstd = splat(o.rstd[row]);
  const std::int64_t begin = row * width;
  double inner = 0;
  for_row_tiles(begin, width, [&](std::int64_t at, std::int64_t n) {
    Tile dy_tile, x_tile, w_tile;
    const float* g = read(dy, at, n, dy_tile);
    const float* v = read(x, at, n, x_tile);
    const float* weight = read(w, at - begin, n, w_tile);
    float* own = dw + (at - begin);
    map([=](V sum, V a, V b) HWY_ATTR { return sum + a * (b * rstd); }, n, own,
        static_cast<const float*>(own), g, v);
    inner += static_cast<double>(
        sum_of([=](V a, V b, V c) HWY_ATTR { return (a * c) * (b * rstd); }, n, g, v, weight));
  });
  if (dx.data == nullptr) return;
  const V mean = splat(static_cast<float>(inner / static_cast<double>(width)));
  for_row_tiles(begin, width, [&](std::int64_t at, std::int64_t n) {
    Tile dy_tile, x_tile, w_tile, dx_tile;
    map([=](V a, V b, V c) HWY_ATTR { return (a * c - (b * rstd) * mean) * rstd; }, n,
        destination(dx, at, dx_tile), read(dy, at, n, dy_tile), read(x, at, n, x_tile),
        read(w, at - begin, n, w_tile));
    finish(dx, at, n, dx_tile);
  });
}

void rms_norm_grad_kernel(const KernelCall& call) {
  const std::int64_t width = call.inputs[1].shape.back();
  const TensorRef& dw = call.outputs[1];
  if (width == 0) return;
  const std::int64_t rows = call.inputs[1].count() / width;
  const std::int64_t step = rms_norm_rows_per_block(rows);
  const std::int64_t blocks = ceil_div(rows, step);
  auto* partials = reinterpret_cast<float*>(call.workspace.data());  // [blocks, width]
  const GradOperands operands{Operand(call.inputs[0]), Operand(call.inputs[1]),
                              Operand(call.inputs[2]), call.inputs[3].as<const float>(),
                              call.outputs[0]};
  for_chunks(call, blocks, [&](std::int64_t block, int) {
    float* own = partials + block * width;
    std::fill(own, own + width, 0.0f);
    const std::int64_t end = std::min(rows, (block + 1) * step);
    for (std::int64_t row = block * step; row < end; ++row) grad_row(operands, row, width, own);
  });
  if (dw.data == nullptr) return;
  for_row_tiles(0, width, [&](std::int64_t at, std::int64_t n) {
    double total[kTile] = {};
    for (std::int64_t block = 0; block < blocks; ++block) {
      const float* part = partials + block * width + at;
      for (std::int64_t i = 0; i < n; ++i) total[i] += static_cast<double>(part[i]);
    }
    Tile tile;
    for (std::int64_t i = 0; i < n; ++i) tile.data[i] = static_cast<float>(total[i]);
    from_floats(tile.data, n, dw.dtype,
                dw.as<std::byte>() + at * static_cast<std::int64_t>(size_of(dw.dtype)));
  });
}

constexpr NamedKernel kRmsNorm[] = {{"rms_norm", rms_norm_kernel},
                                    {"rms_norm_grad", rms_norm_grad_kernel}};

}  // namespace

std::span<const NamedKernel> rms_norm_kernels() {
  return kRmsNorm;
}

}  // namespace tracestep::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tracestep::cpu {

HWY_EXPORT(rms_norm_kernels);

void add_rms_norm_kernels(KernelTable& table) {
  for (const NamedKernel& k : HWY_DYNAMIC_DISPATCH(rms_norm_kernels)()) table.add(k.op, k.kernel);
}

}  // namespace tracestep::cpu
#endif
