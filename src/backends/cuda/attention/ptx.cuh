// Thin wrappers of the Hopper instructions that attention uses and C++ has no name for: clusters,
// the tensor copy engine (TMA), bulk reductions, warpgroup products, register hand-over, named
// barriers, stores of matrix fragments. One function each; nothing here decides.
// Callers are compiled for sm_90a only (TRACESTEP_HOPPER_CODE). Products themselves: wgmma.cuh;
// barriers in shared memory: mbarrier.cuh.
// Source: PTX ISA 8.x, sections named at each group.
#pragma once

#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "backends/cuda/attention/wgmma.cuh"
#include "backends/cuda/mbarrier.cuh"

// Device code of this family is empty for every other architecture.
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define TRACESTEP_HOPPER_CODE 1
#endif

namespace tracestep::cuda {

// --- named barriers ("barrier{.cta}") of `threads` threads in all, which must be whole warps -----
__device__ __forceinline__ void named_sync(int barrier, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}
__device__ __forceinline__ void named_arrive(int barrier, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

// --- clusters ("barrier.cluster", "mapa"); cluster_rank(): this block's index in its cluster -----
__device__ __forceinline__ int cluster_rank() {
  int rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
// Waits for all threads of the cluster that have not ended; afterwards their earlier writes can be
// read.
__device__ __forceinline__ void cluster_sync() {
  asm volatile(
      "barrier.cluster.arrive.release.aligned;\n"
      "barrier.cluster.wait.acquire.aligned;" ::
          : "memory");
}
// Returns the address in the shared memory of block `rank` that `address` has in this block's.
__device__ __forceinline__ std::uint32_t address_in_cluster(std::uint32_t address, int rank) {
  std::uint32_t r;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(r) : "r"(address), "r"(rank));
  return r;
}
__device__ __forceinline__ float4 load_float4_in_cluster(std::uint32_t address) {
  float4 x;
  asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(x.x), "=f"(x.y), "=f"(x.z), "=f"(x.w)
               : "r"(address)
               : "memory");
  return x;
}

// Arrives at the barrier that block `rank` of the cluster has at this address. Release at the scope
// of the cluster would stall each warp for about a microsecond, and reads of shared memory that
// have ended need no release.
__device__ __forceinline__ void barrier_arrive_in_cluster(std::uint32_t barrier, int rank) {
  asm volatile(
      "mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(address_in_cluster(barrier, rank))
      : "memory");
}

// --- TMA ("Data Movement and Conversion Instructions: cp.async.bulk") ----------------------------
__device__ __forceinline__ void prefetch_map(const CUtensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}
// Loads a box of a tensor [batch][head][row][column], see tensor_map.h, to shared memory; its bytes
// count on `barrier`. What lies outside the tensor arrives as zeros.
__device__ __forceinline__ void load_box(std::uint32_t target, const CUtensorMap* map,
                                         std::uint32_t barrier, int column, int row, int head,
                                         int batch) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      " [%0], [%1, {%3, %4, %5, %6}], [%2];" ::"r"(target),
      "l"(map), "r"(barrier), "r"(column), "r"(row), "r"(head), "r"(batch)
      : "memory");
}
// Loads a box (see load_box()) to `target` in each block of the cluster whose bit is set in
// `blocks`; its bytes count on the barrier that the block has at the address `barrier`.
__device__ __forceinline__ void load_box_to_blocks(std::uint32_t target, const CUtensorMap* map,
                                                   std::uint32_t barrier, int column, int row,
                                                   std::uint16_t blocks) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1, {%3, %4, %5, %5}], [%2], %6;" ::"r"(target),
      "l"(map), "r"(barrier), "r"(column), "r"(row), "r"(0), "h"(blocks)
      : "memory");
}
// Writes a box back to global memory; what lies outside the tensor is not written.
__device__ __forceinline__ void store_box(const CUtensorMap* map, std::uint32_t source, int column,
                                          int row, int head, int batch) {
  asm volatile(
      "cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group"
      " [%0, {%2, %3, %4, %5}], [%1];" ::"l"(map),
      "r"(source), "r"(column), "r"(row), "r"(head), "r"(batch)
      : "memory");
}
// Adds source[i] to target[i] for the float32 numbers in `bytes` bytes; each addition is atomic.
__device__ __forceinline__ void add_floats(float* target, std::uint32_t source, int bytes) {
  asm volatile(
      "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(target),
      "r"(source), "r"(bytes)
      : "memory");
}
__device__ __forceinline__ void bulk_commit() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
// Waits until at most kPending of this thread's groups of bulk copies still read shared memory.
template <int kPending>
__device__ __forceinline__ void bulk_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kPending) : "memory");
}
// Waits until at most kPending of this thread's groups of bulk copies are not complete.
template <int kPending>
__device__ __forceinline__ void bulk_wait() {
  asm volatile("cp.async.bulk.wait_group %0;" ::"n"(kPending) : "memory");
}
// Makes ordinary writes to shared memory before this call visible to copy engine and matrix units.
__device__ __forceinline__ void fence_async() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// --- warpgroups ("Asynchronous Warpgroup Level Matrix Instructions", "setmaxnreg") ---------------
__device__ __forceinline__ void wgmma_fence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
// Keeps the compiler from moving uses of `r` across this point: products in flight own it.
template <int K>
__device__ __forceinline__ void pin(float (&r)[K]) {
#pragma unroll
  for (int i = 0; i < K; ++i) asm volatile("" : "+f"(r[i])::"memory");
}
template <int K>
__device__ __forceinline__ void pin(std::uint32_t (&r)[K]) {
#pragma unroll
  for (int i = 0; i < K; ++i) asm volatile("" : "+r"(r[i])::"memory");
}
// Tells the compiler that the values in `r` are not needed: products that overwrite `r` name it as
// an operand, which would otherwise keep them alive.
template <int K>
__device__ __forceinline__ void forget(float (&r)[K]) {
#pragma unroll
  for (int i = 0; i < K; ++i) asm volatile("" : "=f"(r[i]));
}
// Returns `x`, which the compiler takes for a new value: it recomputes what depends on it, instead
// of keeping that in registers across a loop.
template <class I>
__device__ __forceinline__ I recomputed(I x) {
  asm volatile("" : "+r"(x));
  return x;
}
// Waits until at most kPending committed groups of products (wgmma_commit()) are not complete.
template <int kPending>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}
template <int kCount>
__device__ __forceinline__ void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kCount));
}
template <int kCount>
__device__ __forceinline__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kCount));
}

// --- fragments ----------------------------------------------------------------------------------
// Stores four 8x8 matrices of 16-bit numbers; lane i has the address of row i % 8 of matrix i / 8.
__device__ __forceinline__ void store_matrices(std::uint32_t address, std::uint32_t a,
                                               std::uint32_t b, std::uint32_t c, std::uint32_t d) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address),
               "r"(a), "r"(b), "r"(c), "r"(d)
               : "memory");
}
__device__ __forceinline__ void store_float4(std::uint32_t address, float a, float b, float c,
                                             float d) {
  asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(address), "f"(a), "f"(b), "f"(c),
               "f"(d)
               : "memory");
}
__device__ __forceinline__ void store_word(std::uint32_t address, std::uint32_t x) {
  asm volatile("st.shared.u32 [%0], %1;" ::"r"(address), "r"(x) : "memory");
}
__device__ __forceinline__ std::uint32_t load_word(std::uint32_t address) {
  std::uint32_t x;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(x) : "r"(address));
  return x;
}
__device__ __forceinline__ float load_float(std::uint32_t address) {
  float x;
  asm volatile("ld.shared.f32 %0, [%1];" : "=f"(x) : "r"(address));
  return x;
}
__device__ __forceinline__ float4 load_float4(std::uint32_t address) {
  float4 x;
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(x.x), "=f"(x.y), "=f"(x.z), "=f"(x.w)
               : "r"(address));
  return x;
}
__device__ __forceinline__ int load_int(std::uint32_t address) {
  int x;
  asm volatile("ld.shared.s32 %0, [%1];" : "=r"(x) : "r"(address));
  return x;
}
__device__ __forceinline__ float2 load_float2(std::uint32_t address) {
  float2 x;
  asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(x.x), "=f"(x.y) : "r"(address));
  return x;
}
// Returns a word with both numbers, each rounded to nearest; `low` is in the lower half.
template <class T>
__device__ __forceinline__ std::uint32_t pack(float low, float high);
template <>
__device__ __forceinline__ std::uint32_t pack<__nv_bfloat16>(float low, float high) {
  std::uint32_t r;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
}
template <>
__device__ __forceinline__ std::uint32_t pack<__half>(float low, float high) {
  std::uint32_t r;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
}
__device__ __forceinline__ float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ __forceinline__ float reciprocal_fast(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

}  // namespace tracestep::cuda
