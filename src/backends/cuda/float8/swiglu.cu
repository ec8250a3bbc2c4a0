// The result of swiglu and its gradients, quantized where they are computed: nothing but codes is
// written. Both are rounded to the dtype of the operands first, as if they had been stored. The
// sigmoid is the fast one, off by a few 2^-23, which is little in codes of at most 4 significant
// bits: IEEE divisions take 2 to 4 % longer.
#include "backends/cuda/float8/swiglu.h"

#include "backends/cuda/float8/tiles.cuh"

namespace tracestep::cuda {
namespace {

using namespace float8;

template <class T>
struct Sides {
  const T* data;
  std::int64_t leading, columns;
  bool has_packs;

  __device__ __forceinline__ Pack<T, kSide> at(std::int64_t row, std::int64_t column) const {
    return load_side(data + row * leading + column, columns - column, has_packs);
  }
};

__device__ __forceinline__ float fast_sigmoid(float x) {
  return __fdividef(1.0f, 1.0f + __expf(-x));
}

template <class T>
struct SwigluSource {
  using Element = T;
  static constexpr int kParts = 1, kBlocks = sizeof(T) == 2 ? 4 : 2;
  Sides<T> gate, up;
  std::int64_t rows, columns;

  __device__ __forceinline__ void load(std::int64_t row, std::int64_t column,
                                       Pack<T, kSide> (&to)[1]) const {
    const Pack<T, kSide> g = gate.at(row, column), u = up.at(row, column);
#pragma unroll
    for (int j = 0; j < kSide; ++j) {
      const float x = to_float(g.at[j]);
      to[0].at[j] = from_float<T>(x * fast_sigmoid(x) * to_float(u.at[j]));
    }
  }
};

// A source (tiles.cuh) of two matrices: the gradient of the gate, followed by that of up.
template <class T>
struct SwigluGradSource {
  using Element = T;
  static constexpr int kParts = 2, kBlocks = sizeof(T) == 2 ? 3 : 2;
  Sides<T> dy, gate, up;
  std::int64_t rows, columns;

  __device__ __forceinline__ void load(std::int64_t row, std::int64_t column,
                                       Pack<T, kSide> (&to)[2]) const {
    const Pack<T, kSide> d = dy.at(row, column), g = gate.at(row, column), u = up.at(row, column);
#pragma unroll
    for (int j = 0; j < kSide; ++j) {
      const float x = to_float(g.at[j]), dx = to_float(d.at[j]), s = fast_sigmoid(x);
      to[0].at[j] = from_float<T>(dx * to_float(u.at[j]) * (s * (1.0f + x * (1.0f - s))));
      to[1].at[j] = from_float<T>(dx * (x * s));
    }
  }
};

template <class T>
Sides<T> sides_of(const Rows& x, std::int64_t columns) {
  return {static_cast<const T*>(x.data), x.leading, columns,
          columns % kSide == 0 && x.leading % kSide == 0 && is_aligned(x.data, 16)};
}

template <class S>
cudaError_t launch(const S& source, const QuantizedSwiglu& q, const LaunchStream& stream) {
  const std::int64_t width = S::kParts * q.columns;
  const Codes to{.codes = q.codes,
                 .transposed = q.transposed,
                 .rows = q.rows,
                 .columns = width,
                 .leading = q.rows,
                 .limit = q.limit,
                 .codes_in_packs = q.columns % kSide == 0 && is_aligned(q.codes, kSide),
                 .transposed_in_packs = q.rows % kSide == 0 && is_aligned(q.transposed, kSide)};
  const auto tiles = static_cast<int>(quantize_tiles(q.rows, q.columns));
  return quantize_delayed(source, to, {q.last, q.largest, q.scale, q.maxima, tiles, q.room},
                          q.code_dtype == DType::kF8E5M2, stream);
}

}  // namespace

cudaError_t quantize_swiglu(const QuantizedSwiglu& q, const LaunchStream& stream) {
  cudaError_t status = cudaSuccess;
  with_floating(q.dtype, [&]<class T>(T) {
    const Sides<T> gate = sides_of<T>(q.gate, q.columns), up = sides_of<T>(q.up, q.columns);
    if (!q.is_gradient) {
      status = launch(SwigluSource<T>{gate, up, q.rows, q.columns}, q, stream);
      return;
    }
    const Sides<T> dy = sides_of<T>(q.dy, q.columns);
    status = launch(SwigluGradSource<T>{dy, gate, up, q.rows, q.columns}, q, stream);
  });
  return status;
}

}  // namespace tracestep::cuda
