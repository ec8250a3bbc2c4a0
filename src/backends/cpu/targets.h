// Which SIMD targets the kernels are compiled for: AVX-512, AVX2, and scalar code for anything
// older; the choice is made when the kernel table is filled. Included before any Highway header.
#pragma once

#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL)
#endif

namespace tracestep::cpu {

// True if the processor multiplies pairs of bfloat16 (AVX512-BF16), which products then do.
inline bool multiplies_pairs() {
#ifdef __x86_64__
  static const bool has_instruction = __builtin_cpu_supports("avx512bf16");
  return has_instruction;
#else
  return false;
#endif
}

}  // namespace tracestep::cpu
