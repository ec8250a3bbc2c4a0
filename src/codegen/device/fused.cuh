// The building blocks of generated fused kernels: elements as they are stored, packs of them, and
// sums and maxima of a row. Compiled at run time, after the text of functors.h and
// computing_types.cuh; includes nothing and uses no host code.
#pragma once

namespace tracestep::cuda {

// Waits, at the beginning of every kernel, until the kernels before it have ended and their writes
// can be seen; it may be launched earlier. The next kernel may be placed meanwhile.
__device__ inline void wait_for_predecessors() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// A bfloat16 as it is stored: its bits. F16 below is the same for float16.
struct BF16 {
  unsigned short bits;
};
struct F16 {
  unsigned short bits;
};

__device__ inline float to_float(float x) {
  return x;
}
__device__ inline float to_float(BF16 x) {
  return __uint_as_float(static_cast<unsigned>(x.bits) << 16);
}
__device__ inline float to_float(F16 x) {
  float y;
  asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
  return y;
}
// Returns the bool unchanged, since kernels compute with bools as they are.
__device__ inline bool to_float(bool x) {
  return x;
}

// Stores x, rounded to nearest, ties to even; what is too large becomes infinity.
__device__ inline void set(float& to, float x) {
  to = x;
}
__device__ inline void set(BF16& to, float x) {
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(to.bits) : "f"(x));
}
__device__ inline void set(F16& to, float x) {
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(to.bits) : "f"(x));
}
__device__ inline void set(bool& to, bool x) {
  to = x;
}
// Rounds x as if it were stored as a T and read back.
template <class T>
__device__ inline float rounded(float x) {
  T y;
  set(y, x);
  return to_float(y);
}

// A float32 that is added by itself. The compiler could contract a product and the sum that
// follows into one fused multiply-add, but a product is an op of its own that rounds its result.
struct Alone {
  float v;
};
__device__ inline Alone operator+(Alone a, Alone b) {
  return {__fadd_rn(a.v, b.v)};
}
__device__ inline Alone operator-(Alone a, Alone b) {
  return {__fsub_rn(a.v, b.v)};
}

// The unsigned type by which kBytes bytes of a pack are moved at once; uint4 for 16 bytes.
template <int kBytes>
struct WordOf {
  using Type = uint4;
};
template <>
struct WordOf<1> {
  using Type = unsigned char;
};
template <>
struct WordOf<2> {
  using Type = unsigned short;
};
template <>
struct WordOf<4> {
  using Type = unsigned;
};
template <>
struct WordOf<8> {
  using Type = uint2;
};

// N consecutive elements, moved as one word where they have at most 16 bytes, otherwise as words of
// 16 bytes. Addresses are aligned to the word.
template <int N, class T>
struct Pack {
  using Word = typename WordOf<N * sizeof(T)>::Type;
  static constexpr int kWords = N * sizeof(T) / sizeof(Word);
  union {
    Word words[kWords];
    T at[N];
  };
};
template <int N, class T, class V>
__device__ inline void load_pack(const T* from, V* to) {
  Pack<N, T> pack;
#pragma unroll
  for (int i = 0; i < Pack<N, T>::kWords; ++i) {
    pack.words[i] = reinterpret_cast<const typename Pack<N, T>::Word*>(from)[i];
  }
#pragma unroll
  for (int i = 0; i < N; ++i) to[i] = to_float(pack.at[i]);
}
template <int N, class T, class V>
__device__ inline void store_pack(T* to, const V* from) {
  Pack<N, T> pack;
#pragma unroll
  for (int i = 0; i < N; ++i) set(pack.at[i], from[i]);
#pragma unroll
  for (int i = 0; i < Pack<N, T>::kWords; ++i) {
    reinterpret_cast<typename Pack<N, T>::Word*>(to)[i] = pack.words[i];
  }
}
// Loads N elements that lie `step` apart.
template <int N, class T, class V>
__device__ inline void load_each(const T* from, long long step, V* to) {
#pragma unroll
  for (int i = 0; i < N; ++i) to[i] = to_float(from[i * step]);
}
template <int N, class T, class V>
__device__ inline void store_each(T* to, long long step, const V* from) {
#pragma unroll
  for (int i = 0; i < N; ++i) set(to[i * step], from[i]);
}
// Loads N / 2 pairs, the two of a pair neighbours in `to`: first ones `step` apart, second ones
// `half` after the first. kPacks: `step` is 1, and each half is read as one pack.
template <int N, bool kPacks, class T, class V>
__device__ inline void load_halves(const T* from, long long step, long long half, V* to) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    V part[N / 2];
    if constexpr (kPacks) {
      load_pack<N / 2>(from + h * half, part);
    } else {
      load_each<N / 2>(from + h * half, step, part);
    }
#pragma unroll
    for (int i = 0; i < N / 2; ++i) to[2 * i + h] = part[i];
  }
}
template <int N, bool kPacks, class T, class V>
__device__ inline void store_halves(T* to, long long step, long long half, const V* from) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    V part[N / 2];
#pragma unroll
    for (int i = 0; i < N / 2; ++i) part[i] = from[2 * i + h];
    if constexpr (kPacks) {
      store_pack<N / 2>(to + h * half, part);
    } else {
      store_each<N / 2>(to + h * half, step, part);
    }
  }
}

// Adds two numbers, as an operation for row_reduce(). Largest, below, takes the larger one.
struct Plus {
  __device__ float operator()(float a, float b) const { return a + b; }
};
struct Largest {
  __device__ float operator()(float a, float b) const { return maximum(a, b); }
};
__device__ inline float minus_infinity() {
  return __uint_as_float(0xff800000u);
}

template <class F>
__device__ inline float warp_reduce(float x) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) x = F()(x, __shfl_xor_sync(0xffffffffu, x, step));
  return x;
}
// Waits for the kLanes threads of the calling thread's row, one of kRows that a block takes side by
// side: each row has a barrier of its own.
template <int kLanes, int kRows>
__device__ inline void row_barrier() {
  if (kRows == 1) {
    __syncthreads();
  } else {
    asm volatile("bar.sync %0, %1;" ::"r"(threadIdx.x / kLanes + 1), "n"(kLanes) : "memory");
  }
}

// Combines x over the kLanes threads of a row, in an order that depends on kLanes only, and returns
// the result to each of them. A row of one warp uses neither a barrier nor `scratch`. Of a longer
// row all threads have to call this. `scratch` is shared memory for one number per warp of the
// block; as the only barrier stands between writing and reading it, it must not be written again
// before another barrier.
template <class F, int kLanes, int kRows = 1>
__device__ inline float row_reduce(float x, float neutral, float* scratch) {
  x = warp_reduce<F>(x);
  if (kLanes == 32) return x;
  constexpr unsigned kWarps = kLanes / 32;
  if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = x;
  row_barrier<kLanes, kRows>();
  const unsigned first = threadIdx.x / kLanes * kWarps;
  x = threadIdx.x % 32 < kWarps ? scratch[first + threadIdx.x % 32] : neutral;
  return warp_reduce<F>(x);
}

// Adds the N numbers of a thread to those of the threads with its place in the other rows of the
// block; the first row has the sums then. All threads of the block have to call this.
template <int N, int kLanes, int kRows>
__device__ inline void add_groups(float (&sums)[N]) {
  __shared__ float others[(kRows - 1) * N * kLanes];
  const unsigned lane = threadIdx.x % kLanes, group = threadIdx.x / kLanes;
  __syncthreads();  // what was here before has been read
#pragma unroll
  for (int j = 0; j < N; ++j) {
    if (group > 0) others[((group - 1) * N + j) * kLanes + lane] = sums[j];
  }
  __syncthreads();
  if (group > 0) return;
#pragma unroll
  for (int j = 0; j < N; ++j) {
#pragma unroll
    for (int g = 0; g < kRows - 1; ++g)
      sums[j] = Plus()(sums[j], others[(g * N + j) * kLanes + lane]);
  }
}

}  // namespace tracestep::cuda
