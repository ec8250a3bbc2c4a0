// fill, iota, rope_table: results without operands.
#include <bit>
#include <cmath>

#include "backends/cuda/dtype_store.cuh"
#include "backends/cuda/kernels.h"
#include "backends/cuda/launch.cuh"
#include "backends/cuda/rows/row_width.cuh"
#include "base/half.h"
#include "ops/rope_frequency.h"

namespace tracestep::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kResident = 8;  // blocks of kThreads threads per multiprocessor

// --- fill -------------------------------------------------------------------------------------
// Writes whole chunks of equal elements, then the remaining elements.
template <class Chunk, class Element>
__global__ void __launch_bounds__(kThreads)
    fill_kernel(Predecessors before, Element* y, Chunk chunk, Element element, std::int64_t count) {
  before.wait();
  constexpr int kElements = sizeof(Chunk) / sizeof(Element);
  const std::int64_t chunks = count / kElements, stride = std::int64_t{gridDim.x} * kThreads;
  const std::int64_t first = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  for (std::int64_t i = first; i < chunks; i += stride) reinterpret_cast<Chunk*>(y)[i] = chunk;
  if (first < count - chunks * kElements) y[chunks * kElements + first] = element;
}

// Returns x as an integer, rounded towards zero and clamped to the range; 0 for NaN.
template <class Int>
Int whole(double x) {
  using Limits = std::numeric_limits<Int>;
  if (std::isnan(x)) return 0;
  if (x <= static_cast<double>(Limits::min())) return Limits::min();
  if (x >= static_cast<double>(Limits::max())) return Limits::max();
  return static_cast<Int>(x);
}

// Returns the bits of `x` in `dtype`, in the low bytes.
std::uint64_t bits_of(double x, DType dtype) {
  const auto real = static_cast<float>(x);
  switch (dtype) {
    case DType::kBF16: return to_bf16(real).bits;
    case DType::kF16: return to_f16(real).bits;
    case DType::kI64: return static_cast<std::uint64_t>(whole<std::int64_t>(x));
    case DType::kI32: return static_cast<std::uint32_t>(whole<std::int32_t>(x));
    case DType::kU8: return whole<std::uint8_t>(x);
    case DType::kBool: return x != 0.0;
    default: return std::bit_cast<std::uint32_t>(real);
  }
}

template <class Element>
void fill_with(const KernelCall& call, std::uint64_t bits) {
  const TensorRef& y = call.outputs[0];
  const std::int64_t count = y.count();
  const auto element = static_cast<Element>(bits);
  std::uint64_t word = bits;
  for (int width = 8 * sizeof(Element); width < 64; width *= 2) word |= word << width;
  const auto low = static_cast<std::uint32_t>(word), high = static_cast<std::uint32_t>(word >> 32);
  const bool wide = is_aligned(y.data, 16);
  const std::int64_t stores = wide ? ceil_div(count, 16 / sizeof(Element)) : count;
  const Grid grid{.blocks = blocks_for(call, stores, kThreads, kResident), .threads = kThreads};
  if (wide) {
    launch(call, grid, fill_kernel<uint4, Element>, y.as<Element>(), uint4{low, high, low, high},
           element, count);
  } else {
    launch(call, grid, fill_kernel<Element, Element>, y.as<Element>(), element, element, count);
  }
}

void fill(const KernelCall& call) {
  const TensorRef& y = call.outputs[0];
  if (y.count() == 0) return;
  const std::uint64_t bits = bits_of(call.attrs.real("value"), y.dtype);
  with_bytes(static_cast<std::int64_t>(size_of(y.dtype)), [&]<class Element>(Element) {
    if constexpr (sizeof(Element) <= 8) fill_with<Element>(call, bits);
  });
}

// --- iota: kCounted is the number of elements that a thread makes -----------------------------
constexpr int kCounted = 4;  // elements per thread

// Sets element i to (i / inner) mod size, rounding the quotient down.
template <int N, class Index>
__global__ void __launch_bounds__(kThreads)
    count_kernel(Predecessors before, AnyResult<std::int64_t> y, RowWidth inner, RowWidth size,
                 Index count) {
  before.wait();
  const Index first = (static_cast<Index>(blockIdx.x) * kThreads + threadIdx.x) * N;
  if (first >= count) return;
  Pack<std::int64_t, N> values;
#pragma unroll
  for (int j = 0; j < N; ++j) {
    const Index row = inner.row_of(first + j);
    values.at[j] = row - size.row_of(row) * static_cast<Index>(size.value);
  }
  if (first + N <= count) {
    y.put<N>(first, values);
  } else {
#pragma unroll
    for (int j = 0; j < N; ++j) {
      if (first + j < count) y.put<1>(first + j, {{values.at[j]}});
    }
  }
}

template <int N>
void launch_count(const KernelCall& call, std::int64_t inner, std::int64_t size) {
  const TensorRef& y = call.outputs[0];
  const std::int64_t count = y.count();
  const Grid grid{.blocks = static_cast<unsigned>(ceil_div(count, kThreads * N)),
                  .threads = kThreads};
  with_index(count, [&]<class Index>(Index) {
    launch(call, grid, count_kernel<N, Index>, AnyResult<std::int64_t>(y), RowWidth(inner),
           RowWidth(size), static_cast<Index>(count));
  });
}

void iota(const KernelCall& call) {
  const TensorRef& y = call.outputs[0];
  if (y.count() == 0) return;
  auto axis = static_cast<int>(call.attrs.integer("axis"));
  if (axis < 0) axis += y.shape.rank();
  std::int64_t inner = 1;
  for (int i = axis + 1; i < y.shape.rank(); ++i) inner *= y.shape[i];
  if (AnyResult<std::int64_t>(y).takes_packs(kCounted)) {
    launch_count<kCounted>(call, inner, y.shape[axis]);
  } else {
    launch_count<1>(call, inner, y.shape[axis]);
  }
}

// --- rope_table -------------------------------------------------------------------------------
// Writes cos and sin of position · frequency.of(pair), times `magnitude`, at [position, pair].
__global__ void __launch_bounds__(kThreads)
    rope_angles_kernel(Predecessors before, AnyResult<double> cosines, AnyResult<double> sines,
                       ops::RopeFrequency frequency, double magnitude, std::int64_t pairs,
                       std::int64_t count) {
  before.wait();
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= count) return;
  const std::int64_t position = i / pairs, pair = i - position * pairs;
  double sine, cosine;
  ::sincos(static_cast<double>(position) * frequency.of(static_cast<double>(pair)), &sine, &cosine);
  if (cosines.data != nullptr) cosines.put<1>(i, {{magnitude * cosine}});
  if (sines.data != nullptr) sines.put<1>(i, {{magnitude * sine}});
}

void rope_table(const KernelCall& call) {
  const TensorRef &cosines = call.outputs[0], &sines = call.outputs[1];
  const std::int64_t count = cosines.count();
  const Grid grid{.blocks = static_cast<unsigned>(ceil_div(count, kThreads)), .threads = kThreads};
  launch(call, grid, rope_angles_kernel, AnyResult<double>(cosines), AnyResult<double>(sines),
         ops::rope_frequency(call.attrs), call.attrs.real("magnitude"), cosines.shape[1], count);
}

}  // namespace

void add_generator_kernels(KernelTable& table) {
  table.add("fill", fill);
  table.add("iota", iota);
  table.add("rope_table", rope_table);
}

}  // namespace tracestep::cuda
