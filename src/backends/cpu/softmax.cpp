// softmax, its gradient and log-sum-exp over dense rows. Hidden columns of a causal row are
// written as zeros and never computed.
#include <cmath>
#include <limits>

#include "backends/cpu/kernels.h"
#include "backends/cpu/plain_chunks.h"
#include "backends/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/softmax.cpp"
#include <hwy/foreach_target.h>

#include <hwy/highway.h>

#include "backends/cpu/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tracestep::cpu::HWY_NAMESPACE {
namespace {

// Computes e^(scale·x - top).
struct Exponential {
  float scale, top;
  HWY_INLINE V operator()(V x) const { return exp(multiply_subtract(x, splat(scale), splat(top))); }
};

// Sets y[0, visible) = softmax(scale·x), zeros after it. Float32 rows keep the exponentials in y;
// narrow ones compute them twice rather than round them twice.
void softmax_row(const Operand& x, std::int64_t begin, std::int64_t visible, float scale,
                 const TensorRef& y) {
  const bool wide = y.dtype == DType::kF32;
  Exponential f{scale, 0.0f};
  f.top = row_max(x, begin, visible, scale);
  double total = 0;
  for_row_tiles(begin, visible, [&](std::int64_t at, std::int64_t n) {
    Tile x_tile, e_tile;
    const float* values = read(x, at, n, x_tile);
    float* e = destination(y, at, e_tile);
    if (wide) {
      fetch(values + n, n);  // the next row follows
      total += static_cast<double>(map_and_sum(f, n, e, values));
    } else {
      total += static_cast<double>(sum_of(f, n, values));
    }
  });
  const V inverse = splat(static_cast<float>(1.0 / total));
  for_row_tiles(begin, visible, [&](std::int64_t at, std::int64_t n) {
    Tile x_tile, y_tile;
    float* out = destination(y, at, y_tile);
    if (wide) {
      map([=](V e) HWY_ATTR { return e * inverse; }, n, out, static_cast<const float*>(out));
    } else {
      map([=](V v) HWY_ATTR { return f(v) * inverse; }, n, out, read(x, at, n, x_tile));
    }
    finish(y, at, n, y_tile);
  });
}

void softmax_kernel(const KernelCall& call) {
  const Operand x(call.inputs[0]);
  const TensorRef& y = call.outputs[0];
  const std::int64_t width = y.shape.back();
  if (y.count() == 0) return;
  const float scale = static_cast<float>(call.attrs.real("scale"));
  const bool causal = call.attrs.flag("causal");
  const std::int64_t queries = causal ? y.shape.back(1) : 1;
  const std::int64_t offset =
      call.inputs.size() > 1 ? integer_at(call.inputs[1], 0) : width - queries;
  const auto bytes = static_cast<std::int64_t>(size_of(y.dtype));
  for_rows(call, y.count() / width, width, [&](std::int64_t row) {
    std::int64_t visible = width;
    if (causal) visible = std::clamp<std::int64_t>(row % queries + offset + 1, 0, width);
    const std::int64_t begin = row * width;
    if (visible == 0) {  // no visible column: NaN (0/0), as in the decomposition
      Tile nan;
      std::fill_n(nan.data, kTile, std::numeric_limits<float>::quiet_NaN());
      for_row_tiles(begin, width, [&](std::int64_t at, std::int64_t n) {
        from_floats(nan.data, n, y.dtype, y.as<std::byte>() + at * bytes);
      });
      return;
    }
    softmax_row(x, begin, visible, scale, y);
    std::memset(y.as<std::byte>() + (begin + visible) * bytes, 0,
                static_cast<std::size_t>((width - visible) * bytes));
  });
}

void softmax_grad_kernel(const KernelCall& call) {
  const Operand dy(call.inputs[0]), y(call.inputs[1]);
  const TensorRef& dx = call.outputs[0];
  const std::int64_t width = dx.shape.back();
  if (dx.count() == 0) return;
  const float scale = static_cast<float>(call.attrs.real("scale"));
  for_rows(call, dx.count() / width, width, [&](std::int64_t row) {
    double total = 0;
    for_row_tiles(row * width, width, [&](std::int64_t at, std::int64_t n) {
      Tile a, b;
      total +=
          static_cast<double>(sum_of(functors::Mul(), n, read(dy, at, n, a), read(y, at, n, b)));
    });
    const V inner = splat(static_cast<float>(total));
    for_row_tiles(row * width, width, [&](std::int64_t at, std::int64_t n) {
      Tile a, b, out;
      map([=](V g, V p) HWY_ATTR { return (g - inner) * p * splat(scale); }, n,
          destination(dx, at, out), read(dy, at, n, a), read(y, at, n, b));
      finish(dx, at, n, out);
    });
  });
}

void log_sum_exp_kernel(const KernelCall& call) {
  const Operand x(call.inputs[0]);
  const TensorRef& y = call.outputs[0];
  const std::int64_t width = call.inputs[0].shape.back();
  for_rows(call, y.count(), width, [&](std::int64_t row) {
    const float value = row_log_sum_exp(x, row * width, width);
    from_floats(&value, 1, y.dtype,
                y.as<std::byte>() + row * static_cast<std::int64_t>(size_of(y.dtype)));
  });
}

constexpr NamedKernel kSoftmax[] = {{"softmax", softmax_kernel},
                                    {"softmax_grad", softmax_grad_kernel},
                                    {"log_sum_exp", log_sum_exp_kernel}};

}  // namespace

std::span<const NamedKernel> softmax_kernels() {
  return kSoftmax;
}

}  // namespace tracestep::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tracestep::cpu {

HWY_EXPORT(softmax_kernels);

void add_softmax_kernels(KernelTable& table) {
  for (const NamedKernel& k : HWY_DYNAMIC_DISPATCH(softmax_kernels)()) table.add(k.op, k.kernel);
}

}  // namespace tracestep::cpu
#endif
