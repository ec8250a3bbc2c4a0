// Numbers in device code: element types and their conversion to float32, in which all arithmetic
// is done; packs of elements read and written at once.
#pragma once

#include <cstdint>

#include "backends/cuda/element_types.cuh"
#include "base/dtype.h"
#include "codegen/device/computing_types.cuh"
#include "ops/scalar/functors.h"

namespace tracestep::cuda {

// --- element types ----------------------------------------------------------------------------
// Returns x as a T: to nearest, ties to even; beyond the range infinity, or T's largest for 8 bits.
template <class T>
__device__ inline T from_float(float x);
template <>
__device__ inline float from_float<float>(float x) {
  return x;
}
template <>
__device__ inline BF16 from_float<BF16>(float x) {
  return __float2bfloat16_rn(x);
}
template <>
__device__ inline F16 from_float<F16>(float x) {
  return __float2half_rn(x);
}
template <>
__device__ inline F8E4M3 from_float<F8E4M3>(float x) {
  return F8E4M3(x);
}
template <>
__device__ inline F8E5M2 from_float<F8E5M2>(float x) {
  return F8E5M2(x);
}

// Calls f(T{}) with the element type of a floating dtype that this back end computes in.
template <class F>
void with_floating(DType dtype, F&& f) {
  switch (dtype) {
    case DType::kBF16: return f(BF16{});
    case DType::kF16: return f(F16{});
    default: return f(float{});
  }
}

// Calls f(T{}) with an unsigned T of `bytes` bytes (16: uint4), for elements that are only moved.
template <class F>
void with_bytes(std::int64_t bytes, F&& f) {
  switch (bytes) {
    case 16: return f(uint4{});
    case 8: return f(std::uint64_t{});
    case 4: return f(std::uint32_t{});
    case 2: return f(std::uint16_t{});
    default: return f(std::uint8_t{});
  }
}

// --- packs ----------------------------------------------------------------------------------
// N neighbouring elements, which one instruction moves if they have 4, 8 or 16 bytes.
template <class T, int N>
struct alignas(sizeof(T) * N) Pack {
  T at[N];
};

// The number of elements of type T in 16 bytes.
template <class T>
inline constexpr int kPack = 16 / static_cast<int>(sizeof(T));

// A word of kBytes bytes: 1, 2, 4, 8 or 16.
template <int kBytes>
struct WordOf;
template <>
struct WordOf<1> {
  using Type = std::uint8_t;
};
template <>
struct WordOf<2> {
  using Type = std::uint16_t;
};
template <>
struct WordOf<4> {
  using Type = std::uint32_t;
};
template <>
struct WordOf<8> {
  using Type = uint2;
};
template <>
struct WordOf<16> {
  using Type = uint4;
};

template <int N, class T>
__device__ inline Pack<T, N> load_pack(const T* address) {
  return *reinterpret_cast<const Pack<T, N>*>(address);
}

// Stores a pack to global memory in words as wide as possible. The words are written out, because
// the compiler would merge a plain assignment with the single-element stores at the ends of a row.
template <int N, class T>
__device__ inline void store_pack(T* address, const Pack<T, N>& pack) {
  constexpr int kBytes = N * static_cast<int>(sizeof(T)), kWord = kBytes < 16 ? kBytes : 16;
  using Word = typename WordOf<kWord>::Type;
  Word words[kBytes / kWord];
  memcpy(words, &pack, sizeof words);
#pragma unroll
  for (int i = 0; i < kBytes / kWord; ++i) __stwb(reinterpret_cast<Word*>(address) + i, words[i]);
}

// True if `address` may be read in packs of `bytes`.
inline bool is_aligned(const void* address, std::size_t bytes) {
  return reinterpret_cast<std::uintptr_t>(address) % bytes == 0;
}

}  // namespace tracestep::cuda
