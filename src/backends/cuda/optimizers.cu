// AdamW in one pass: four streams in, three out, usually in place. Streams differ in dtype, which
// is looked at when an element is read: the pass waits for memory, not for that.
#include "backends/cuda/kernels.h"
#include "backends/cuda/launch.cuh"
#include "backends/cuda/numbers.cuh"

namespace tracestep::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kResident = 4;  // blocks of kThreads threads per multiprocessor
constexpr int kAhead = 2;     // groups of elements in flight per thread

struct Stream {
  void* data = nullptr;  // nullptr: a result nobody reads
  DType dtype = DType::kF32;

  Stream() = default;
  explicit Stream(const TensorRef& tensor) : data(tensor.data), dtype(tensor.dtype) {}

  // Whether groups of `elements` can be moved at once.
  bool is_aligned_to(std::size_t elements) const {
    return is_aligned(data, elements * size_of(dtype));
  }
};

// N elements as they are stored, so that loads of all streams are issued before the first is used.
template <int N>
struct Raw {
  Pack<float, N> bits;  // of 16-bit elements: the first half
};

template <int N>
__device__ Raw<N> load(const Stream& stream, std::int64_t i) {
  Raw<N> raw;
  if (stream.dtype == DType::kF32) {
    raw.bits = load_pack<N>(static_cast<const float*>(stream.data) + i);
  } else {
    const auto half = load_pack<N>(static_cast<const std::uint16_t*>(stream.data) + i);
    memcpy(&raw.bits, &half, sizeof half);
  }
  return raw;
}

template <int N>
__device__ Pack<float, N> widened(const Raw<N>& raw, DType dtype) {
  if (dtype == DType::kF32) return raw.bits;
  Pack<std::uint16_t, N> half;
  memcpy(&half, &raw.bits, sizeof half);
  Pack<float, N> out;
#pragma unroll
  for (int j = 0; j < N; ++j) {
    out.at[j] = dtype == DType::kBF16 ? __uint_as_float(std::uint32_t{half.at[j]} << 16)
                                      : __half2float(__ushort_as_half(half.at[j]));
  }
  return out;
}

template <int N>
__device__ void store(const Stream& stream, std::int64_t i, const Pack<float, N>& x) {
  if (stream.data == nullptr) return;
  const auto narrowed = [&]<class T>(T) {
    Pack<T, N> out;
#pragma unroll
    for (int j = 0; j < N; ++j) out.at[j] = from_float<T>(x.at[j]);
    store_pack(static_cast<T*>(stream.data) + i, out);
  };
  switch (stream.dtype) {
    case DType::kBF16: narrowed(BF16{}); break;
    case DType::kF16: narrowed(F16{}); break;
    default: narrowed(float{}); break;
  }
}

// A rank-0 operand; `fallback` when there is none.
__device__ float scalar_of(const Stream& scalar, float fallback) {
  if (scalar.data == nullptr) return fallback;
  return widened<1>(load<1>(scalar, 0), scalar.dtype).at[0];
}

struct Update {
  Stream p, g, m, v;
  Stream p_new, m_new, v_new;  // each may be its old self
  Stream lr, step_size, grad_scale;
  const bool* apply;  // nullptr: always
  float weight_decay, beta1, beta2, eps;
};

struct Factors {
  Real decay, step_size, grad_scale, beta1, beta2, eps;
};

template <int N>
struct Group {
  Raw<N> p, g, m, v;
};

template <int N>
__device__ Group<N> load_group(const Update& u, std::int64_t i) {
  return {load<N>(u.p, i), load<N>(u.g, i), load<N>(u.m, i), load<N>(u.v, i)};
}

template <int N>
__device__ void update_group(const Update& u, const Factors& f, bool apply, std::int64_t i,
                             const Group<N>& group) {
  Pack<float, N> p = widened<N>(group.p, u.p.dtype), m = widened<N>(group.m, u.m.dtype);
  Pack<float, N> v = widened<N>(group.v, u.v.dtype);
  const Pack<float, N> g = widened<N>(group.g, u.g.dtype);
#pragma unroll
  for (int j = 0; j < N; ++j) {
    const auto r = scalar::Adamw()(Real{p.at[j]}, Real{g.at[j]} * f.grad_scale, Real{m.at[j]},
                                   Real{v.at[j]}, f.decay, f.step_size, f.beta1, f.beta2, f.eps);
    p.at[j] = apply ? r.parameter.v : p.at[j];
    m.at[j] = apply ? r.m.v : m.at[j];
    v.at[j] = apply ? r.v.v : v.at[j];
  }
  store<N>(u.p_new, i, p);
  store<N>(u.m_new, i, m);
  store<N>(u.v_new, i, v);
}

// Elements in groups of N; `groups` of them from `begin` on.
template <int N>
__global__ void __launch_bounds__(kThreads)
    adamw_kernel(Update u, std::int64_t begin, std::int64_t groups) {
  const Factors factors{.decay = {scalar_of(u.lr, 0.0f) * -u.weight_decay + 1.0f},
                        .step_size = {scalar_of(u.step_size, 0.0f)},
                        .grad_scale = {scalar_of(u.grad_scale, 1.0f)},
                        .beta1 = {u.beta1},
                        .beta2 = {u.beta2},
                        .eps = {u.eps}};
  const bool apply = u.apply == nullptr || *u.apply;
  const std::int64_t stride = std::int64_t{gridDim.x} * kThreads;
  std::int64_t first = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  for (; first < groups; first += kAhead * stride) {
    Group<N> group[kAhead];
#pragma unroll
    for (int k = 0; k < kAhead; ++k) {
      const std::int64_t i = first + k * stride;
      if (i < groups) group[k] = load_group<N>(u, begin + i * N);
    }
#pragma unroll
    for (int k = 0; k < kAhead; ++k) {
      const std::int64_t i = first + k * stride;
      if (i < groups) update_group<N>(u, factors, apply, begin + i * N, group[k]);
    }
  }
}

template <int N>
void launch_adamw(const KernelCall& call, const Update& update, std::int64_t begin,
                  std::int64_t groups) {
  if (groups == 0) return;
  const Grid grid{.blocks = blocks_for(call, groups, kThreads * kAhead, kResident, 8),
                  .threads = kThreads};
  launch(call, grid, adamw_kernel<N>, update, begin, groups);
}

Update update_of(const KernelCall& call) {
  const auto in = call.inputs;
  const auto out = call.outputs;
  const Attrs& attrs = call.node.attrs;
  return {.p = Stream(in[0]),
          .g = Stream(in[1]),
          .m = Stream(in[2]),
          .v = Stream(in[3]),
          .p_new = Stream(out[0]),
          .m_new = Stream(out[1]),
          .v_new = Stream(out[2]),
          .lr = Stream(in[4]),
          .step_size = Stream(in[5]),
          .grad_scale = in.size() > 6 ? Stream(in[6]) : Stream(),
          .apply = in.size() > 7 ? in[7].as<const bool>() : nullptr,
          .weight_decay = static_cast<float>(attrs.real("weight_decay")),
          .beta1 = static_cast<float>(attrs.real("beta1")),
          .beta2 = static_cast<float>(attrs.real("beta2")),
          .eps = static_cast<float>(attrs.real("eps"))};
}

void adamw(const KernelCall& call) {
  constexpr int kGroup = 4;  // 16 bytes of float32
  const Update u = update_of(call);
  const std::int64_t count = call.inputs[0].count();
  bool aligned = true;
  for (const Stream& s : {u.p, u.g, u.m, u.v, u.p_new, u.m_new, u.v_new}) {
    aligned = aligned && s.is_aligned_to(kGroup);
  }
  const std::int64_t groups = aligned ? count / kGroup : 0;
  launch_adamw<kGroup>(call, u, 0, groups);
  launch_adamw<1>(call, u, groups * kGroup, count - groups * kGroup);
}

}  // namespace

void add_optimizer_kernels(KernelTable& table) {
  table.add("adamw", adamw);
}

}  // namespace tracestep::cuda
