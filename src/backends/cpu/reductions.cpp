// sum and max over any axes of any layout, and the global norm. A result is reduced in tiles of
// float32 whose results are added in float64, in an order that only the shape decides.
#include <cmath>
#include <limits>

#include "backends/cpu/kernels.h"
#include "backends/cpu/targets.h"
#include "base/integers.h"
#include "planning/cpu_plans.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/reductions.cpp"
#include <hwy/foreach_target.h>

#include <hwy/highway.h>

#include "backends/cpu/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tracestep::cpu::HWY_NAMESPACE {
namespace {

struct SumOf {
  static constexpr double kStart = 0.0;
  static float tile(std::int64_t n, const float* x) {
    return sum_of([](V v) HWY_ATTR { return v; }, n, x);
  }
  static double combine(double a, double b) { return a + b; }
  template <class T>
  HWY_INLINE T operator()(T a, T b) const {
    return a + b;
  }
};

struct MaxOf {
  static constexpr double kStart = -std::numeric_limits<double>::infinity();
  static float tile(std::int64_t n, const float* x) {
    return max_of(n, x, -std::numeric_limits<float>::infinity());
  }
  static double combine(double a, double b) { return a != a || a > b ? a : b; }
  template <class T>
  HWY_INLINE T operator()(T a, T b) const {
    return max(a, b);
  }
};

// The axes of x as [kept..., reduced...], with the number of results and of elements of each.
struct Split {
  Shape kept_shape, reduced_shape;
  Strides kept_strides, reduced_strides;
  std::int64_t results = 1, reduced = 1;
};

Split split_axes(const TensorRef& x, const Dims& axes) {
  Split s;
  for (int i = 0; i < x.shape.rank(); ++i) {
    bool is_reduced = false;
    for (std::int64_t axis : axes) is_reduced |= axis == i || axis + x.shape.rank() == i;
    (is_reduced ? s.reduced_shape : s.kept_shape).push_back(x.shape[i]);
    (is_reduced ? s.reduced_strides : s.kept_strides).push_back(x.strides[i]);
  }
  s.results = s.kept_shape.product();
  s.reduced = s.reduced_shape.product();
  return s;
}

// Reduces elements [begin, end) of each row of the permuted operand; a row belongs to one result.
template <class R>
void reduce_rows(const Operand& x, const Split& s, std::int64_t result, std::int64_t count,
                 std::int64_t begin, std::int64_t end, double* out) {
  for (std::int64_t r = 0; r < count; ++r) {
    double total = R::kStart;
    for (std::int64_t i = begin; i < end; i += kTile) {
      const std::int64_t n = std::min(kTile, end - i);
      Tile tile;
      const float* values = read(x, (result + r) * s.reduced + i, n, tile);
      total = R::combine(total, static_cast<double>(R::tile(n, values)));
    }
    out[r] = total;
  }
}

// Sizes where results have neighbouring elements: kColumns results are computed at once, from
// kAtOnce reduced indices in one go, so that partial results are read and written a quarter as
// often. At most kFlush elements are combined in float32 before they go into float64.
constexpr std::int64_t kColumns = kTile;
constexpr int kAtOnce = 4, kFlush = 64;
static_assert(kFlush % kAtOnce == 0);

template <class R>
void reduce_columns(const Operand& kept, const Operand& reduced, std::int64_t result,
                    std::int64_t count, std::int64_t begin, std::int64_t end, double* out) {
  const R fold;
  Tile part, copies[kAtOnce];
  const float* rows[kAtOnce];
  std::fill_n(out, count, R::kStart);
  std::fill_n(part.data, count, static_cast<float>(R::kStart));
  int waiting = 0, filled = 0;  // rows that were read, and those in `part`
  const auto fold_in = [&] {
    const float* now = part.data;
    if (waiting == kAtOnce) {
      map([&](V p, V a, V b, V c, V d) HWY_ATTR { return fold(p, fold(fold(a, b), fold(c, d))); },
          count, part.data, now, rows[0], rows[1], rows[2], rows[3]);
    } else {
      for (int i = 0; i < waiting; ++i) map(fold, count, part.data, now, rows[i]);
    }
    filled += waiting;
    waiting = 0;
  };
  const auto flush = [&] {
    fold_in();
    for (std::int64_t c = 0; c < count; ++c) {
      out[c] = R::combine(out[c], static_cast<double>(part.data[c]));
      part.data[c] = static_cast<float>(R::kStart);
    }
    filled = 0;
  };
  const std::int64_t floats = count * kept.element_bytes / std::int64_t{sizeof(float)};
  Operand row = kept;
  for_runs(reduced, begin, end - begin,
           [&](const std::byte* p, std::int64_t stride, std::int64_t n) {
             for (std::int64_t i = 0; i < n; ++i) {
               row.data = p + i * stride * kept.element_bytes;
               if (kept.is_dense && i + kAtOnce < n) {
                 const std::byte* later = row.at(result + kAtOnce * stride);
                 fetch(reinterpret_cast<const float*>(later), floats);
               }
               rows[waiting] = read(row, result, count, copies[waiting]);
               if (++waiting == kAtOnce) fold_in();
               if (filled == kFlush) flush();
             }
           });
  flush();
}

void put_results(const TensorRef& y, std::int64_t at, std::int64_t n, const double* totals) {
  float values[kColumns];
  for (std::int64_t i = 0; i < n; ++i) values[i] = static_cast<float>(totals[i]);
  from_floats(values, n, y.dtype,
              y.as<std::byte>() + at * static_cast<std::int64_t>(size_of(y.dtype)));
}

template <class R>
void reduce_kernel(const KernelCall& call) {
  const TensorRef &x = call.inputs[0], &y = call.outputs[0];
  const Split s = split_axes(x, call.attrs.ints("axes"));
  if (s.results == 0) return;
  Shape shape = s.kept_shape;
  Strides strides = s.kept_strides;
  for (int i = 0; i < s.reduced_shape.rank(); ++i) {
    shape.push_back(s.reduced_shape[i]);
    strides.push_back(s.reduced_strides[i]);
  }
  const Operand permuted(x, shape, strides);
  const Operand kept(x, s.kept_shape, s.kept_strides);
  const Operand reduced(x, s.reduced_shape, s.reduced_strides);
  const bool by_columns = s.results > 1 && kept.walk.inner_stride() == 1 &&
                          (reduced.walk.inner_stride() != 1 || s.reduced == 1);
  const std::int64_t parts = reduction_parts(s.results, s.reduced);
  auto* partials = reinterpret_cast<double*>(call.workspace.data());  // [parts, results]
  // Results per job: a stretch of columns, or enough rows to be worth a job.
  const std::int64_t step =
      by_columns
          ? kColumns
          : std::clamp<std::int64_t>(kChunk / std::max<std::int64_t>(1, s.reduced), 1, kColumns);
  const std::int64_t groups = ceil_div(s.results, step);
  for_chunks(call, groups * parts, [&](std::int64_t job, int) {
    const std::int64_t part = job / groups, first = job % groups * step;
    const std::int64_t count = std::min(step, s.results - first);
    const std::int64_t begin = part * s.reduced / parts, end = (part + 1) * s.reduced / parts;
    double local[kColumns];
    double* out = parts > 1 ? partials + part * s.results + first : local;
    if (by_columns) {
      reduce_columns<R>(kept, reduced, first, count, begin, end, out);
    } else {
      reduce_rows<R>(permuted, s, first, count, begin, end, out);
    }
    if (parts == 1) put_results(y, first, count, out);
  });
  if (parts == 1) return;
  for (std::int64_t first = 0; first < s.results; first += kColumns) {
    const std::int64_t count = std::min(kColumns, s.results - first);
    double totals[kColumns];
    std::copy_n(partials + first, count, totals);
    for (std::int64_t part = 1; part < parts; ++part) {
      for (std::int64_t i = 0; i < count; ++i) {
        totals[i] = R::combine(totals[i], partials[part * s.results + first + i]);
      }
    }
    put_results(y, first, count, totals);
  }
}

void global_norm_kernel(const KernelCall& call) {
  auto* partials = reinterpret_cast<double*>(call.workspace.data());
  std::int64_t chunks = 0;
  for (const TensorRef& input : call.inputs) {
    const Operand x(input);
    const std::int64_t count = input.count(), first = chunks;
    const std::int64_t own = ceil_div(count, kNormChunk);
    for_chunks(call, own, [&](std::int64_t chunk, int) {
      const std::int64_t end = std::min(count, (chunk + 1) * kNormChunk);
      double total = 0;
      for (std::int64_t i = chunk * kNormChunk; i < end; i += kTile) {
        const std::int64_t n = std::min(kTile, end - i);
        Tile tile;
        total += static_cast<double>(sum_of(functors::Square(), n, read(x, i, n, tile)));
      }
      partials[first + chunk] = total;
    });
    chunks += own;
  }
  double total = 0;
  for (std::int64_t i = 0; i < chunks; ++i) total += partials[i];
  *call.outputs[0].as<float>() = static_cast<float>(std::sqrt(total));
}

constexpr NamedKernel kReductions[] = {{"sum", reduce_kernel<SumOf>},
                                       {"max", reduce_kernel<MaxOf>},
                                       {"global_norm", global_norm_kernel}};

}  // namespace

std::span<const NamedKernel> reduction_kernels() {
  return kReductions;
}

}  // namespace tracestep::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tracestep::cpu {

HWY_EXPORT(reduction_kernels);

void add_reduction_kernels(KernelTable& table) {
  for (const NamedKernel& k : HWY_DYNAMIC_DISPATCH(reduction_kernels)()) table.add(k.op, k.kernel);
}

}  // namespace tracestep::cpu
#endif
