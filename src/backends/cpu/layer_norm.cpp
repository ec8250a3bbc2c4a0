// layer_norm and its gradient, a row at a time: the later passes over a row find it in L1. The mean
// is taken before the squares of what differs from it, so that nothing cancels.
#include <cmath>

#include "backends/cpu/kernels.h"
#include "backends/cpu/targets.h"
#include "base/integers.h"
#include "planning/cpu_plans.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/layer_norm.cpp"
#include <hwy/foreach_target.h>

#include <hwy/highway.h>

#include "backends/cpu/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tracestep::cpu::HWY_NAMESPACE {
namespace {

// Returns the mean of f over a row of x.
template <class F>
double row_mean(const Operand& x, std::int64_t begin, std::int64_t width, const F& f) {
  double total = 0;
  for_row_tiles(begin, width, [&](std::int64_t at, std::int64_t n) {
    Tile tile;
    total += static_cast<double>(sum_of(f, n, read(x, at, n, tile)));
  });
  return total / static_cast<double>(width);
}

void layer_norm_kernel(const KernelCall& call) {
  const bool has_bias = call.inputs.size() > 2;
  const Operand x(call.inputs[0]), w(call.inputs[1]), b(call.inputs[has_bias ? 2 : 1]);
  const TensorRef &y = call.outputs[0], &mean_out = call.outputs[1], &rstd_out = call.outputs[2];
  const std::int64_t width = call.inputs[0].shape.back();
  if (width == 0) return;
  const double eps = call.attrs.real("eps");
  for_rows(call, call.inputs[0].count() / width, width, [&](std::int64_t row) {
    const std::int64_t begin = row * width;
    const auto mean = static_cast<float>(row_mean(x, begin, width, [](V v) HWY_ATTR { return v; }));
    const double variance = row_mean(x, begin, width, [=](V v) HWY_ATTR {
      const V apart = v - splat(mean);
      return apart * apart;
    });
    const auto rstd = static_cast<float>(1.0 / std::sqrt(variance + eps));
    if (mean_out.data != nullptr) mean_out.as<float>()[row] = mean;
    if (rstd_out.data != nullptr) rstd_out.as<float>()[row] = rstd;
    if (y.data == nullptr) return;
    for_row_tiles(begin, width, [&](std::int64_t at, std::int64_t n) {
      Tile x_tile, w_tile, b_tile, y_tile;
      float* to = destination(y, at, y_tile);
      const float *values = read(x, at, n, x_tile), *weight = read(w, at - begin, n, w_tile);
      const auto normed = [=](V v, V by)
                              HWY_ATTR { return by * ((v - splat(mean)) * splat(rstd)); };
      if (has_bias) {
        map([=](V v, V by, V and_) HWY_ATTR { return normed(v, by) + and_; }, n, to, values, weight,
            read(b, at - begin, n, b_tile));
      } else {
        map(normed, n, to, values, weight);
      }
      finish(y, at, n, y_tile);
    });
  });
}

struct GradOperands {
  Operand dy, x, w;
  const float *mean, *rstd;
  TensorRef dx;
};

// Adds dw += dy ∘ normed and db += dy of one row, and writes its dx, which may be where dy is.
void grad_row(const GradOperands& o, std::int64_t row, std::int64_t width, float* dw, float* db) {
  const V mean = splat(o.mean[row]), rstd = splat(o.rstd[row]);
  const std::int64_t begin = row * width;
  double sum = 0, inner = 0;
  for_row_tiles(begin, width, [&](std::int64_t at, std::int64_t n) {
    Tile dy_tile, x_tile, w_tile;
    const float* g = read(o.dy, at, n, dy_tile);
    const float* v = read(o.x, at, n, x_tile);
    const float* weight = read(o.w, at - begin, n, w_tile);
    float *own_w = dw + (at - begin), *own_b = db + (at - begin);
    map([=](V total, V a, V c) HWY_ATTR { return total + a * ((c - mean) * rstd); }, n, own_w,
        static_cast<const float*>(own_w), g, v);
    map([](V total, V a) HWY_ATTR { return total + a; }, n, own_b, static_cast<const float*>(own_b),
        g);
    sum += static_cast<double>(sum_of([](V a, V by) HWY_ATTR { return a * by; }, n, g, weight));
    inner += static_cast<double>(sum_of(
        [=](V a, V c, V by) HWY_ATTR { return (a * by) * ((c - mean) * rstd); }, n, g, v, weight));
  });
  if (o.dx.data == nullptr) return;
  const V of_sum = splat(static_cast<float>(sum / static_cast<double>(width))),
          of_inner = splat(static_cast<float>(inner / static_cast<double>(width)));
  for_row_tiles(begin, width, [&](std::int64_t at, std::int64_t n) {
    Tile dy_tile, x_tile, w_tile, dx_tile;
    map([=](V a, V c, V by)
            HWY_ATTR { return (a * by - of_sum - ((c - mean) * rstd) * of_inner) * rstd; },
        n, destination(o.dx, at, dx_tile), read(o.dy, at, n, dy_tile), read(o.x, at, n, x_tile),
        read(o.w, at - begin, n, w_tile));
    finish(o.dx, at, n, dx_tile);
  });
}

// Sets `to` to the sum of `blocks` rows that lie `stride` floats apart.
void sum_blocks(const float* partials, std::int64_t blocks, std::int64_t stride,
                const TensorRef& to, std::int64_t width) {
  if (to.data == nullptr) return;
  for_row_tiles(0, width, [&](std::int64_t at, std::int64_t n) {
    double total[kTile] = {};
    for (std::int64_t block = 0; block < blocks; ++block) {
      const float* part = partials + block * stride + at;
      for (std::int64_t i = 0; i < n; ++i) total[i] += static_cast<double>(part[i]);
    }
    Tile tile;
    for (std::int64_t i = 0; i < n; ++i) tile.data[i] = static_cast<float>(total[i]);
    from_floats(tile.data, n, to.dtype,
                to.as<std::byte>() + at * static_cast<std::int64_t>(size_of(to.dtype)));
  });
}

void layer_norm_grad_kernel(const KernelCall& call) {
  const std::int64_t width = call.inputs[1].shape.back();
  if (width == 0) return;
  const std::int64_t rows = call.inputs[1].count() / width;
  const std::int64_t step = rms_norm_rows_per_block(rows);
  const std::int64_t blocks = ceil_div(rows, step);
  auto* partials = reinterpret_cast<float*>(call.workspace.data());  // [blocks, 2, width]
  const GradOperands operands{Operand(call.inputs[0]),          Operand(call.inputs[1]),
                              Operand(call.inputs[2]),          call.inputs[3].as<const float>(),
                              call.inputs[4].as<const float>(), call.outputs[0]};
  for_chunks(call, blocks, [&](std::int64_t block, int) {
    float *dw = partials + block * 2 * width, *db = dw + width;
    std::fill(dw, dw + 2 * width, 0.0f);
    const std::int64_t end = std::min(rows, (block + 1) * step);
    for (std::int64_t row = block * step; row < end; ++row) grad_row(operands, row, width, dw, db);
  });
  sum_blocks(partials, blocks, 2 * width, call.outputs[1], width);
  sum_blocks(partials + width, blocks, 2 * width, call.outputs[2], width);
}

constexpr NamedKernel kLayerNorm[] = {{"layer_norm", layer_norm_kernel},
                                      {"layer_norm_grad", layer_norm_grad_kernel}};

}  // namespace

std::span<const NamedKernel> layer_norm_kernels() {
  return kLayerNorm;
}

}  // namespace tracestep::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tracestep::cpu {

HWY_EXPORT(layer_norm_kernels);

void add_layer_norm_kernels(KernelTable& table) {
  for (const NamedKernel& k : HWY_DYNAMIC_DISPATCH(layer_norm_kernels)()) table.add(k.op, k.kernel);
}

}  // namespace tracestep::cpu
#endif
