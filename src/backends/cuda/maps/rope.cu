// Rotary position embedding: rotates pairs of every row, neighbours or half a row apart, by the
// angles of its position.
// x may be strided outside its rows (heads of a [B,T,H,D] projection); the result is dense.
#include "backends/cuda/kernels.h"
#include "backends/cuda/numbers.cuh"
#include "backends/cuda/rows/row_width.cuh"

namespace tracestep::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kResident = 6;  // blocks of kThreads threads per multiprocessor
constexpr int kAhead = 4;     // heads that a thread turns by the angles it has read once

struct Rotation {
  Walk<1> outer;            // walks through x along the dimensions before the position
  std::int64_t row_stride;  // elements of x from one position to the next
  std::int64_t positions;
  RowWidth row_packs;   // packs in a row
  RowWidth head_packs;  // packs in all positions
  const void *cos, *sin;
  DType angle_dtype;
  float sign;
};

// Reads N cosines or sines from `i` on, which are stored as `dtype`.
template <int N>
__device__ void read_angles(const void* data, DType dtype, std::int64_t i, float (&out)[N]) {
  const auto read = [&]<class T>(const T* from) {
    const Pack<T, N> pack = load_pack<N>(from + i);
#pragma unroll
    for (int j = 0; j < N; ++j) out[j] = to_float(pack.at[j]);
  };
  switch (dtype) {
    case DType::kBF16: read(static_cast<const BF16*>(data)); break;
    case DType::kF16: read(static_cast<const F16*>(data)); break;
    default: read(static_cast<const float*>(data)); break;
  }
}

// Reads N elements of a row in one pack (kPacked: the row is aligned to N elements), or one by one.
template <int N, bool kPacked, class T>
__device__ Pack<T, N> read_row(const T* from) {
  if constexpr (kPacked) {
    return load_pack<N>(from);
  } else {
    Pack<T, N> out;
#pragma unroll
    for (int j = 0; j < N; ++j) out.at[j] = from[j];
    return out;
  }
}

// Reads pack `i` of N elements of a row, so that the two of a pair are neighbours in the result; if
// they lie `half` apart in the row (kHalves), it takes N/2 from each half of the row.
template <int N, bool kPacked, bool kHalves, class T>
__device__ Pack<T, N> read_pairs(const T* row, std::int64_t i, std::int64_t half) {
  if constexpr (!kHalves) {
    return read_row<N, kPacked>(row + i * N);
  } else {
    const auto first = read_row<N / 2, kPacked>(row + i * (N / 2));
    const auto second = read_row<N / 2, kPacked>(row + half + i * (N / 2));
    Pack<T, N> out;
#pragma unroll
    for (int j = 0; j < N / 2; ++j) {
      out.at[2 * j] = first.at[j];
      out.at[2 * j + 1] = second.at[j];
    }
    return out;
  }
}

template <int N, bool kHalves, class T>
__device__ void store_pairs(T* row, std::int64_t i, std::int64_t half, const Pack<T, N>& x) {
  if constexpr (!kHalves) {
    store_pack(row + i * N, x);
  } else {
    Pack<T, N / 2> first, second;
#pragma unroll
    for (int j = 0; j < N / 2; ++j) {
      first.at[j] = x.at[2 * j];
      second.at[j] = x.at[2 * j + 1];
    }
    store_pack(row + i * (N / 2), first);
    store_pack(row + half + i * (N / 2), second);
  }
}

template <class T, int N>
__device__ Pack<T, N> rotated(const Pack<T, N>& x, const float (&cos)[N / 2],
                              const float (&sin)[N / 2]) {
  Pack<T, N> y;
#pragma unroll
  for (int j = 0; j < N / 2; ++j) {
    const auto turned = scalar::Rotate()(
        Real{to_float(x.at[2 * j])}, Real{to_float(x.at[2 * j + 1])}, Real{cos[j]}, Real{sin[j]});
    y.at[2 * j] = from_float<T>(turned.first.v);
    y.at[2 * j + 1] = from_float<T>(turned.second.v);
  }
  return y;
}

// Rotates x: [outer..., positions, D] → y, dense. Item i is a pack of a row in kAhead heads.
template <class T, int N, bool kPacked, bool kHalves, class Index>
__global__ void __launch_bounds__(kThreads)
    rotate_pairs_kernel(Predecessors before, const T* x, T* y, Rotation r, Index count) {
  before.wait();
  const Index stride = static_cast<Index>(gridDim.x) * kThreads;
  Index i = static_cast<Index>(blockIdx.x) * kThreads + threadIdx.x;
  for (; i < count; i += stride) {
    const Index group = r.head_packs.row_of(i);
    const Index in_head = i - group * static_cast<Index>(r.head_packs.value);
    const Index position = r.row_packs.row_of(in_head);
    const Index pack = in_head - position * static_cast<Index>(r.row_packs.value);
    const std::int64_t in_x = static_cast<std::int64_t>(position) * r.row_stride;
    const std::int64_t half = r.row_packs.value * (N / 2);
    Pack<T, N> parts[kAhead] = {};
#pragma unroll
    for (int k = 0; k < kAhead; ++k) {
      const Index head = group * kAhead + k;
      if (head >= static_cast<Index>(r.outer.count)) continue;
      std::int64_t offset[1];
      r.outer.offsets(head, offset);
      parts[k] = read_pairs<N, kPacked, kHalves>(x + offset[0] + in_x, pack, half);
    }
    float cos[N / 2], sin[N / 2];
    const std::int64_t angle = static_cast<std::int64_t>(in_head) * (N / 2);
    read_angles(r.cos, r.angle_dtype, angle, cos);
    read_angles(r.sin, r.angle_dtype, angle, sin);
#pragma unroll
    for (int j = 0; j < N / 2; ++j) sin[j] *= r.sign;
#pragma unroll
    for (int k = 0; k < kAhead; ++k) {
      const Index head = group * kAhead + k;
      if (head >= static_cast<Index>(r.outer.count)) continue;
      const std::int64_t at = static_cast<std::int64_t>(head) * r.head_packs.value + in_head - pack;
      store_pairs<N, kHalves>(y + at * N, pack, half, rotated(parts[k], cos, sin));
    }
  }
}

template <class T, int N, bool kPacked>
void launch_rotation(const KernelCall& call, Rotation r) {
  const TensorRef& y = call.outputs[0];
  r.row_packs = RowWidth(y.shape.back() / N);
  r.head_packs = RowWidth(r.row_packs.value * r.positions);
  const std::int64_t count = ceil_div(r.outer.count, kAhead) * r.head_packs.value;
  const Grid grid{.blocks = blocks_for(call, count, kThreads, kResident), .threads = kThreads};
  const bool small = fits_32_bits(count) && r.outer.fits_32_bits();
  with_index(small ? 0 : std::int64_t{1} << 31, [&]<class Index>(Index) {
    const auto kernel = call.attrs.flag("halves")
                            ? rotate_pairs_kernel<T, N, kPacked, true, Index>
                            : rotate_pairs_kernel<T, N, kPacked, false, Index>;
    launch(call, grid, kernel, call.inputs[0].as<const T>(), y.as<T>(), r,
           static_cast<Index>(count));
  });
}

// True if all of x and the angles can be read in packs of N elements.
template <class T>
bool reads_packs(const KernelCall& call) {
  const TensorRef& x = call.inputs[0];
  constexpr std::int64_t kN = kPack<T>;
  bool packs = x.shape.back() % kN == 0 && is_aligned(x.data, 16);
  for (int i = 0; i + 1 < x.shape.rank(); ++i) {
    packs = packs && (x.shape[i] == 1 || x.strides[i] % kN == 0);
  }
  const std::size_t angle_bytes = static_cast<std::size_t>(kN / 2) * size_of(call.inputs[1].dtype);
  return packs && is_aligned(call.inputs[1].data, angle_bytes) &&
         is_aligned(call.inputs[2].data, angle_bytes);
}

void rotate_pairs(const KernelCall& call) {
  const TensorRef &x = call.inputs[0], &y = call.outputs[0];
  if (y.count() == 0) return;
  const int outer_rank = x.shape.rank() - 2;
  Shape outer;
  Strides strides;
  for (int i = 0; i < outer_rank; ++i) {
    outer.push_back(x.shape[i]);
    strides.push_back(x.strides[i]);
  }
  const Rotation r{.outer = make_walk<1>(outer, {strides}),
                   .row_stride = x.strides[outer_rank],
                   .positions = x.shape[outer_rank],
                   .row_packs = RowWidth(1),
                   .head_packs = RowWidth(1),
                   .cos = call.inputs[1].data,
                   .sin = call.inputs[2].data,
                   .angle_dtype = call.inputs[1].dtype,
                   .sign = call.attrs.flag("inverse") ? -1.0f : 1.0f};
  with_floating(y.dtype, [&]<class T>(T) {
    if (reads_packs<T>(call)) {
      launch_rotation<T, kPack<T>, true>(call, r);
    } else {
      launch_rotation<T, 2, false>(call, r);
    }
  });
}

}  // namespace

void add_rope_kernels(KernelTable& table) {
  table.add("rope", rotate_pairs);
}

}  // namespace tracestep::cuda
