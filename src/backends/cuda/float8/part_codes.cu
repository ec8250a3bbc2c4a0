// Codes of weights in parts, as ranks hold them: the largest magnitude of each part, the codes with
// the scale of its whole tensor, and the transpose of codes that were gathered. One launch for many
// tensors.
#include "backends/cuda/float8/part_codes.h"

#include <algorithm>

#include "backends/cuda/dtype_store.cuh"
#include "backends/cuda/float8/tiles.cuh"
#include "backends/cuda/launch.cuh"
#include "base/integers.h"

namespace tracestep::cuda {
namespace {

using namespace float8;

constexpr std::size_t kParameterBytes = 32764;
constexpr int kBlocks = 32;  // blocks that walk through each tensor

struct Part {
  const void* x = nullptr;
  const float* last = nullptr;
  std::uint8_t* codes = nullptr;
  float *scale = nullptr, *largest = nullptr;  // each may be null: nobody reads it
  std::int64_t count = 0, packs = 0;  // elements, and how many times 8 lie at whole 16 bytes
};

struct Parts {
  static constexpr int kMost = 500;
  Part at[kMost];
  float* now = nullptr;  // the largest magnitude of each part now
  float limit = 0, room = 1;
};
static_assert(sizeof(Predecessors) + alignof(Parts) + sizeof(Parts) <= kParameterBytes);

__global__ void least_magnitudes_kernel(Predecessors before, float* now, int count) {
  before.wait();
  for (int i = static_cast<int>(threadIdx.x); i < count; i += kThreads) {
    now[i] = __uint_as_float(kLeastBits);
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    largest_magnitudes_kernel(Predecessors before, const __grid_constant__ Parts parts) {
  before.wait();
  __shared__ std::uint32_t scratch[kThreads / 32];
  const Part& part = parts.at[blockIdx.x];
  const T* x = static_cast<const T*>(part.x);
  const std::int64_t first = std::int64_t{blockIdx.y} * kThreads + threadIdx.x,
                     step = std::int64_t{gridDim.y} * kThreads;
  Magnitude<T> magnitude;
#pragma unroll 4
  for (std::int64_t i = first; i < part.packs; i += step) {
    magnitude.take(reinterpret_cast<const Pack<T, kSide>*>(x)[i]);
  }
  std::uint32_t largest = magnitude.bits();
  for (std::int64_t i = part.packs * kSide + first; i < part.count; i += step) {
    largest = ::max(largest, magnitude_bits_of(to_float(x[i])));
  }
  largest = block_max(largest, scratch);
  // Magnitudes are ordered as their bits are.
  if (threadIdx.x == 0) {
    atomicMax(reinterpret_cast<std::uint32_t*>(parts.now + blockIdx.x), largest);
  }
}

template <class T, bool kIsE5M2>
__global__ void __launch_bounds__(kThreads)
    quantize_parts_kernel(Predecessors before, const __grid_constant__ Parts parts) {
  before.wait();
  const Part& part = parts.at[blockIdx.x];
  const T* x = static_cast<const T*>(part.x);
  const float now = parts.now[blockIdx.x], last = *part.last, reach = reach_of(last, parts.room);
  const bool fits = now <= reach && last <= parts.room * now;
  const float inverse = __fdiv_rn(parts.limit, fits ? reach : now);
  const std::int64_t first = std::int64_t{blockIdx.y} * kThreads + threadIdx.x,
                     step = std::int64_t{gridDim.y} * kThreads;
#pragma unroll 4
  for (std::int64_t i = first; i < part.packs; i += step) {
    reinterpret_cast<uint2*>(part.codes)[i] =
        codes_of<kIsE5M2>(reinterpret_cast<const Pack<T, kSide>*>(x)[i], inverse);
  }
  for (std::int64_t i = part.packs * kSide + first; i < part.count; i += step) {
    part.codes[i] = static_cast<std::uint8_t>(two_codes<kIsE5M2>(to_float(x[i]) * inverse, 0.0f));
  }
  if (first != 0) return;
  if (part.scale != nullptr) *part.scale = __fdiv_rn(fits ? reach : now, parts.limit);
  if (part.largest != nullptr) *part.largest = now;
}

__global__ void __launch_bounds__(kThreads, 4)
    transpose_codes_kernel(Predecessors before, const std::uint8_t* x, Codes to) {
  before.wait();
  const std::int64_t across = (to.columns + kTile - 1) / kTile,
                     first_row = blockIdx.x / across * kTile,
                     first_column = blockIdx.x % across * kTile,
                     row = first_row + threadIdx.x / kPacks * kSide,
                     column = first_column + threadIdx.x % kPacks * kSide;
  std::uint32_t words[kSide][2];
#pragma unroll
  for (int i = 0; i < kSide; ++i) {
    const bool is_inside = row + i < to.rows && column < to.columns;
    const uint2 codes = is_inside
                            ? *reinterpret_cast<const uint2*>(x + (row + i) * to.columns + column)
                            : make_uint2(0, 0);
    words[i][0] = codes.x;
    words[i][1] = codes.y;
  }
  store_transposed(to, {first_row, first_column, to.columns}, words);
}

std::int64_t packs_of(const TensorRef& x, const std::uint8_t* codes) {
  return is_aligned(x.data, 16) && is_aligned(codes, kSide) ? x.count() / kSide : 0;
}

// Launches `kernel` on part_of(0) .. part_of(count - 1), as many at a time as one launch takes.
template <class PartOf, class Kernel>
void for_tables(const KernelCall& call, std::size_t count, Parts parts, PartOf&& part_of,
                Kernel&& kernel) {
  for (std::size_t first = 0; first < count; first += Parts::kMost) {
    const std::size_t here = std::min<std::size_t>(count - first, Parts::kMost);
    for (std::size_t i = 0; i < here; ++i) parts.at[i] = part_of(first + i);
    Grid grid{.blocks = static_cast<unsigned>(here), .threads = kThreads};
    grid.blocks_y = kBlocks;
    launch(call, grid, kernel, parts);
    parts.now += here;
  }
}

void largest_magnitudes(const KernelCall& call) {
  const std::size_t count = call.inputs.size();
  auto* const now = call.outputs[0].as<float>();
  launch(call, {.blocks = 1, .threads = kThreads}, least_magnitudes_kernel, now,
         static_cast<int>(count));
  const auto part_of = [&](std::size_t i) {
    const TensorRef& x = call.inputs[i];
    return Part{.x = x.data, .count = x.count(), .packs = packs_of(x, nullptr)};
  };
  with_floating(call.inputs[0].dtype, [&]<class T>(T) {
    for_tables(call, count, {.at = {}, .now = now}, part_of, largest_magnitudes_kernel<T>);
  });
}

void quantize_parts(const KernelCall& call) {
  const Parts parts{.at = {},
                    .now = call.inputs[0].as<float>(),
                    .limit = static_cast<float>(call.attrs.real("largest")),
                    .room = static_cast<float>(call.attrs.real("room"))};
  const auto part_of = [&](std::size_t i) {
    const TensorRef *from = &call.inputs[1 + 2 * i], *to = &call.outputs[3 * i];
    auto* const codes = to[0].as<std::uint8_t>();
    return Part{.x = from[0].data,
                .last = from[1].as<const float>(),
                .codes = codes,
                .scale = to[1].as<float>(),
                .largest = to[2].as<float>(),
                .count = codes == nullptr ? 0 : from[0].count(),
                .packs = codes == nullptr ? 0 : packs_of(from[0], codes)};
  };
  const bool is_e5m2 = call.attrs.dtype("dtype") == DType::kF8E5M2;
  with_floating(call.inputs[1].dtype, [&]<class T>(T) {
    for_tables(call, call.inputs.size() / 2, parts, part_of,
               is_e5m2 ? quantize_parts_kernel<T, true> : quantize_parts_kernel<T, false>);
  });
}

void transpose_codes(const KernelCall& call) {
  const TensorRef& x = call.inputs[0];
  const Codes to{.transposed = call.outputs[0].as<std::uint8_t>(),
                 .rows = x.shape[0],
                 .columns = x.shape[1],
                 .leading = x.shape[0],
                 .transposed_in_packs = true};
  const std::int64_t tiles = ceil_div(to.rows, kTile) * ceil_div(to.columns, kTile);
  launch(call, {.blocks = static_cast<unsigned>(tiles), .threads = kThreads},
         transpose_codes_kernel, x.as<const std::uint8_t>(), to);
}

}  // namespace

void add_part_codes_kernels(KernelTable& table) {
  table.add("largest_magnitudes", largest_magnitudes);
  table.add("quantize_parts", quantize_parts);
  table.add("transpose_codes", transpose_codes);
}

}  // namespace tracestep::cuda
