// The instructions that the portable attention kernels use (sm_80 and later): ldmatrix, mma.sync
// m16n8k16 and cp.async, and a layout of tiles in shared memory without bank conflicts. Hopper's
// own instructions are in ptx.cuh.
#pragma once

#include <cstdint>

#include "backends/cuda/element_types.cuh"

namespace tracestep::cuda::portable {

__device__ __forceinline__ std::uint32_t shared_address(const void* pointer) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(pointer));
}

// --- copies from global to shared memory ------------------------------------------------------

// Copies 16 bytes, of which `bytes` are read and the others become zero; both sides are aligned.
__device__ __forceinline__ void copy_async(std::uint32_t to, const void* from, int bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes)
               : "memory");
}

__device__ __forceinline__ void commit_copies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}

// Waits for this thread's groups of copies (commit_copies()), all but the last kPending of them.
template <int kPending>
__device__ __forceinline__ void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

__device__ __forceinline__ void store_shared(std::uint32_t to, std::uint32_t word) {
  asm volatile("st.shared.u32 [%0], %1;" ::"r"(to), "r"(word) : "memory");
}

__device__ __forceinline__ void store_shared(std::uint32_t to, uint4 words) {
  asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(words.x), "r"(words.y),
               "r"(words.z), "r"(words.w)
               : "memory");
}

__device__ __forceinline__ uint4 load_shared(std::uint32_t from) {
  uint4 words;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(words.x), "=r"(words.y), "=r"(words.z), "=r"(words.w)
               : "r"(from)
               : "memory");
  return words;
}

__device__ __forceinline__ float2 load_shared_pair(std::uint32_t from) {
  float2 pair;
  asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(pair.x), "=f"(pair.y) : "r"(from));
  return pair;
}

// --- tensor cores -----------------------------------------------------------------------------

// Loads four 8x8 matrices of 16-bit elements; lane l has the address of row l % 8 of matrix l / 8.
__device__ __forceinline__ void load_matrices(std::uint32_t (&r)[4], std::uint32_t from) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(from));
}

// Loads four 8x8 matrices of 16-bit elements, at addresses as for load_matrices(); transposes each.
__device__ __forceinline__ void load_matrices_transposed(std::uint32_t (&r)[4],
                                                         std::uint32_t from) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(from));
}

// Adds d[16, 8] += a[16, 16] b[16, 8] in float32. Lane l holds, with g = l / 4 and t = l % 4: a:
// (g, 2t), (g+8, 2t), (g, 2t+8), (g+8, 2t+8), two columns each; b: (2t, g), (2t+8, g), two rows
// each; d: (g, 2t), (g, 2t+1), (g+8, 2t), (g+8, 2t+1).
template <class E>
__device__ __forceinline__ void multiply(float (&d)[4], const std::uint32_t (&a)[4],
                                         std::uint32_t b0, std::uint32_t b1);
template <>
__device__ __forceinline__ void multiply<BF16>(float (&d)[4], const std::uint32_t (&a)[4],
                                               std::uint32_t b0, std::uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
template <>
__device__ __forceinline__ void multiply<F16>(float (&d)[4], const std::uint32_t (&a)[4],
                                              std::uint32_t b0, std::uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Rounds two numbers into one register, the first in the low half.
template <class E>
__device__ __forceinline__ std::uint32_t pack(float first, float second);
template <>
__device__ __forceinline__ std::uint32_t pack<BF16>(float first, float second) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(first, second);
  return *reinterpret_cast<const std::uint32_t*>(&pair);
}
template <>
__device__ __forceinline__ std::uint32_t pack<F16>(float first, float second) {
  const __half2 pair = __floats2half2_rn(first, second);
  return *reinterpret_cast<const std::uint32_t*>(&pair);
}

// Splits each number into kParts parts whose sum it is, with 11 bits each: words `high` and `low`.
template <class E, int kParts>
__device__ __forceinline__ void split(float first, float second, std::uint32_t& high,
                                      std::uint32_t& low) {
  high = pack<E>(first, second);
  if constexpr (kParts == 2) {
    const float2 rounded = __half22float2(*reinterpret_cast<const __half2*>(&high));
    low = pack<E>(first - rounded.x, second - rounded.y);
  }
}

// Forces x to be computed here, by a store that never happens. Otherwise the assembler computes all
// sums of a tile before it adds the first one, for which there are not enough registers.
// `never`: a value that `address` never has, which the assembler cannot know.
__device__ __forceinline__ void settle(const float (&x)[4], std::uint32_t address,
                                       std::uint32_t never) {
  asm volatile(
      "{ .reg .pred p; setp.eq.u32 p, %0, %1; @p st.shared.v4.f32 [%0], {%2, %3, %4, %5}; }" ::"r"(
          address),
      "r"(never), "f"(x[0]), "f"(x[1]), "f"(x[2]), "f"(x[3]));
}

// Keeps later loads from being moved before this point, by a branch that is never taken.
__device__ __forceinline__ void stay_behind(std::uint32_t x, std::uint32_t never) {
  asm volatile("{ .reg .pred p; setp.eq.u32 p, %0, %1; @p trap; }" ::"r"(x), "r"(never));
}

__device__ __forceinline__ float exp2_fast(float x) {  // what is below the normal numbers becomes 0
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// --- tiles in shared memory -------------------------------------------------------------------
// Rows of kD 16-bit elements, one after the other, in chunks of 16 bytes; chunk c of row r lies at
// place c ^ swizzle(r), so that the eight rows that one ldmatrix phase reads lie in 32 banks.
template <int kD>
struct TileLayout {
  static_assert(kD % 16 == 0);
  static constexpr int kPitch = 2 * kD;   // bytes from row to row
  static constexpr int kChunks = kD / 8;  // in a row
  static constexpr int kGroup = kChunks % 8 == 0 ? 8 : kChunks % 4 == 0 ? 4 : 2;

  static __device__ __forceinline__ int swizzle(int row) {
    return (row & 7) / (8 / kGroup) & (kGroup - 1);
  }
  static __device__ __forceinline__ std::uint32_t offset(int row, int chunk) {
    return static_cast<std::uint32_t>(row * kPitch + ((chunk ^ swizzle(row)) << 4));
  }
};

// A lane's offsets for ldmatrix in a 16x16 block. `rows`: for a left operand, read along its rows,
// or a right one [k, n], transposed; `columns`: for a right operand that is stored as [n, k].
template <int kD>
struct LaneOffsets {
  std::uint32_t rows, rows_chunk, columns, columns_chunk;

  __device__ __forceinline__ explicit LaneOffsets(int lane) {
    using Layout = TileLayout<kD>;
    const int row = lane & 15, column = (lane & 7) + (lane >> 4) * 8;
    rows = static_cast<std::uint32_t>(row * Layout::kPitch);
    rows_chunk = static_cast<std::uint32_t>((lane >> 4) ^ Layout::swizzle(row)) << 4;
    columns = static_cast<std::uint32_t>(column * Layout::kPitch);
    columns_chunk = static_cast<std::uint32_t>((lane >> 3 & 1) ^ Layout::swizzle(column)) << 4;
  }

  // Returns equal offsets that the compiler takes for new ones in every step of a loop: addresses
  // computed from them occupy no registers across the loop. Steps stay below 2^30.
  __device__ __forceinline__ LaneOffsets in(int step) const {
    LaneOffsets offsets = *this;
    offsets.rows_chunk += static_cast<std::uint32_t>(step) >> 30 << 24;
    offsets.columns_chunk += static_cast<std::uint32_t>(step) >> 30 << 24;
    return offsets;
  }
};

}  // namespace tracestep::cuda::portable
