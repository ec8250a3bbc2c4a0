// Barriers in shared memory and the bulk copies that complete on them (compute capability 9.0 and
// later), for which C++ has no names. Source: PTX ISA 8.x, "mbarrier", "cp.async.bulk".
#pragma once

#include <cstdint>

namespace tracestep::cuda {

// Returns an address in shared memory as PTX takes it.
__device__ __forceinline__ std::uint32_t shared_address(const void* pointer) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(pointer));
}

// Makes a barrier, which counts arrivals and bytes still to come; its phase flips when both are
// complete. Waiting for parity p returns once the phase of parity p is complete: a fresh barrier is
// in phase 0, so a wait for parity 1 returns at once.
__device__ __forceinline__ void barrier_init(std::uint32_t barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals));
}
// Makes the initialisation visible to the copy engine.
__device__ __forceinline__ void barrier_init_fence() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ __forceinline__ void barrier_arrive(std::uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
// Arrives once, and lets the barrier wait for `bytes` more.
__device__ __forceinline__ void barrier_arrive_expect(std::uint32_t barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}
__device__ __forceinline__ void barrier_wait(std::uint32_t barrier, std::uint32_t parity) {
  asm volatile(
      "{\n.reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@done bra complete;\n"
      "bra again;\n"
      "complete:\n}\n" ::"r"(barrier),
      "r"(parity)
      : "memory");
}

// Starts to copy `bytes` adjacent bytes (a multiple of 16) from global to shared memory; they count
// on `barrier`.
__device__ __forceinline__ void load_bytes(std::uint32_t target, const void* source, int bytes,
                                           std::uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(target),
      "l"(source), "r"(bytes), "r"(barrier)
      : "memory");
}

}  // namespace tracestep::cuda
