// Which SIMD targets the kernels are compiled for: AVX-512, AVX2, and scalar code for anything
// older; the choice is made when the kernel table is filled. Included before any Highway header.
#pragma once

#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL)
#endif
