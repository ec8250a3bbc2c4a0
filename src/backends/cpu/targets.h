// The SIMD targets for which kernels are compiled: AVX-512, AVX2, and scalar code for older
// processors. One is chosen when the kernel table is filled. Must be included before any Highway
// header.
#pragma once

#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL)
#endif
