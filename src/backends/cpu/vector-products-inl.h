// Products of one row or column, whose matrix is read once and not packed, and how products see
// their operands.
#if defined(TRACESTEP_BACKENDS_CPU_VECTOR_PRODUCTS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TRACESTEP_BACKENDS_CPU_VECTOR_PRODUCTS_INL_H
#undef TRACESTEP_BACKENDS_CPU_VECTOR_PRODUCTS_INL_H
#else
#define TRACESTEP_BACKENDS_CPU_VECTOR_PRODUCTS_INL_H
#endif

#include <algorithm>

#include "backends/cpu/tiles-inl.h"
#include "planning/cpu_plans.h"

HWY_BEFORE_NAMESPACE();
namespace tracestep::cpu::HWY_NAMESPACE {

// An operand as [batch, outer, k] whichever way it is stored: outer is m for `a`, n for `b`.
struct Matrix {
  const std::byte* data;
  DType dtype;
  std::int64_t batch_stride, outer_stride, k_stride;  // elements

  const std::byte* at(std::int64_t batch, std::int64_t outer, std::int64_t k) const {
    const std::int64_t i = batch * batch_stride + outer * outer_stride + k * k_stride;
    return data + i * static_cast<std::int64_t>(size_of(dtype));
  }
};

// The rows that a thread takes together.
constexpr std::int64_t kVectorRows = 256;

// Returns Σ_k row[k] x[k].
inline float dot_row(const std::byte* row, DType dtype, const float* x, std::int64_t k) {
  const auto bytes = static_cast<std::int64_t>(size_of(dtype));
  double total = 0;
  for (std::int64_t i = 0; i < k; i += kTile) {
    const std::int64_t n = std::min(kTile, k - i);
    Tile tile;
    const float* w = reinterpret_cast<const float*>(row) + i;
    if (dtype != DType::kF32) {
      to_floats(row + i * bytes, dtype, 1, n, tile.data);
      w = tile.data;
    }
    total += sum_of(functors::Mul(), n, w, x + i);
  }
  return static_cast<float>(total);
}

// Computes y[r] = Σ_k x[k] w[r, k] for rows that lie side by side, all at once, k after k.
inline void add_columns(const Matrix& w, const std::byte* first, const float* x, std::int64_t k,
                        std::int64_t rows, float* y) {
  const auto step = w.k_stride * static_cast<std::int64_t>(size_of(w.dtype));
  double total[kVectorRows] = {};
  alignas(64) float part[kVectorRows] = {};
  alignas(64) float column[kVectorRows];
  for (std::int64_t i = 0; i < k; ++i) {
    to_floats(first + i * step, w.dtype, 1, rows, column);
    const V scale = splat(x[i]);
    map([&](V s, V c) HWY_ATTR { return s + scale * c; }, rows, part,
        static_cast<const float*>(part), static_cast<const float*>(column));
    if (i % 256 == 255 || i + 1 == k) {  // short float sums inside a double one
      for (std::int64_t r = 0; r < rows; ++r) total[r] += static_cast<double>(part[r]);
      std::fill(part, part + rows, 0.0f);
    }
  }
  for (std::int64_t r = 0; r < rows; ++r) y[r] = static_cast<float>(total[r]);
}

// Computes a product of one row or column: y[r] = Σ_k x[k] w[r, k]. `vectors` holds [batch, k]
// floats. write(sums, begin, count) gets `count` elements of the result from `begin` on.
template <class Write>
void multiply_vector(const KernelCall& call, const GemmPlan& plan, const Matrix& a, const Matrix& b,
                     float* vectors, const Write& write) {
  const bool is_row = plan.m == 1;
  const std::int64_t rows = is_row ? plan.n : plan.m;
  const Matrix& w = is_row ? b : a;
  const Matrix& x = is_row ? a : b;
  for (std::int64_t batch = 0; batch < plan.batch; ++batch) {
    to_floats(x.at(batch, 0, 0), x.dtype, x.k_stride, plan.k, vectors + batch * plan.k);
  }
  const std::int64_t per_chunk =
      std::clamp<std::int64_t>(4 * kChunk / plan.k / 16 * 16, 16, kVectorRows);
  const std::int64_t chunks = (rows + per_chunk - 1) / per_chunk;
  for_chunks(call, plan.batch * chunks, [&](std::int64_t chunk, int) {
    const std::int64_t batch = chunk / chunks, begin = chunk % chunks * per_chunk;
    const std::int64_t n = std::min(per_chunk, rows - begin);
    const float* vector = vectors + batch * plan.k;
    float y[kVectorRows];
    if (w.k_stride == 1 || plan.k == 1) {
      for (std::int64_t r = 0; r < n; ++r) {
        y[r] = dot_row(w.at(batch, begin + r, 0), w.dtype, vector, plan.k);
      }
    } else {
      add_columns(w, w.at(batch, begin, 0), vector, plan.k, n, y);
    }
    write(y, batch * rows + begin, n);
  });
}

}  // namespace tracestep::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // TRACESTEP_BACKENDS_CPU_VECTOR_PRODUCTS_INL_H
