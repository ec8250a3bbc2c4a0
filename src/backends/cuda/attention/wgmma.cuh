// The warpgroup matrix product D += A B of Hopper (wgmma.mma_async, m64nNk16, 16-bit operands,
// float32 accumulators) for the widths N that attention uses. A comes from shared memory (ss) or
// registers (rs), B from shared memory. Inline assembly wants every register spelt out; hence the
// macros. Source: PTX ISA 8.x, "Asynchronous Warpgroup Level Matrix Multiply-Accumulate".
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

namespace tracestep::cuda {

#define TS_INDICES_24                                                      \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
  "%16, %17, %18, %19, %20, %21, %22, %23"
#define TS_INDICES_32 \
  TS_INDICES_24       \
  ", "                \
  "%24, %25, %26, %27, %28, %29, %30, %31"
#define TS_INDICES_40 \
  TS_INDICES_32       \
  ", "                \
  "%32, %33, %34, %35, %36, %37, %38, %39"
#define TS_INDICES_48 \
  TS_INDICES_40       \
  ", "                \
  "%40, %41, %42, %43, %44, %45, %46, %47"
#define TS_INDICES_56 \
  TS_INDICES_48       \
  ", "                \
  "%48, %49, %50, %51, %52, %53, %54, %55"
#define TS_INDICES_64 \
  TS_INDICES_56       \
  ", "                \
  "%56, %57, %58, %59, %60, %61, %62, %63"
#define TS_INDICES_72 \
  TS_INDICES_64       \
  ", "                \
  "%64, %65, %66, %67, %68, %69, %70, %71"
#define TS_INDICES_80 \
  TS_INDICES_72       \
  ", "                \
  "%72, %73, %74, %75, %76, %77, %78, %79"
#define TS_INDICES_88 \
  TS_INDICES_80       \
  ", "                \
  "%80, %81, %82, %83, %84, %85, %86, %87"
#define TS_INDICES_96 \
  TS_INDICES_88       \
  ", "                \
  "%88, %89, %90, %91, %92, %93, %94, %95"
#define TS_INDICES_128                                                                           \
  TS_INDICES_96                                                                                  \
  ", "                                                                                           \
  "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, " \
  "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define TS_REGISTERS_24                                                                           \
  "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), \
      "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]),    \
      "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]),  \
      "+f"(d[22]), "+f"(d[23])
#define TS_REGISTERS_32                                                                          \
  TS_REGISTERS_24, "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), \
      "+f"(d[30]), "+f"(d[31])
#define TS_REGISTERS_40                                                                          \
  TS_REGISTERS_32, "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), \
      "+f"(d[38]), "+f"(d[39])
#define TS_REGISTERS_48                                                                          \
  TS_REGISTERS_40, "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), \
      "+f"(d[46]), "+f"(d[47])
#define TS_REGISTERS_56                                                                          \
  TS_REGISTERS_48, "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), \
      "+f"(d[54]), "+f"(d[55])
#define TS_REGISTERS_64                                                                          \
  TS_REGISTERS_56, "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), \
      "+f"(d[62]), "+f"(d[63])
#define TS_REGISTERS_72                                                                          \
  TS_REGISTERS_64, "+f"(d[64]), "+f"(d[65]), "+f"(d[66]), "+f"(d[67]), "+f"(d[68]), "+f"(d[69]), \
      "+f"(d[70]), "+f"(d[71])
#define TS_REGISTERS_80                                                                          \
  TS_REGISTERS_72, "+f"(d[72]), "+f"(d[73]), "+f"(d[74]), "+f"(d[75]), "+f"(d[76]), "+f"(d[77]), \
      "+f"(d[78]), "+f"(d[79])
#define TS_REGISTERS_88                                                                          \
  TS_REGISTERS_80, "+f"(d[80]), "+f"(d[81]), "+f"(d[82]), "+f"(d[83]), "+f"(d[84]), "+f"(d[85]), \
      "+f"(d[86]), "+f"(d[87])
#define TS_REGISTERS_96                                                                          \
  TS_REGISTERS_88, "+f"(d[88]), "+f"(d[89]), "+f"(d[90]), "+f"(d[91]), "+f"(d[92]), "+f"(d[93]), \
      "+f"(d[94]), "+f"(d[95])
#define TS_REGISTERS_128                                                                           \
  TS_REGISTERS_96, "+f"(d[96]), "+f"(d[97]), "+f"(d[98]), "+f"(d[99]), "+f"(d[100]), "+f"(d[101]), \
      "+f"(d[102]), "+f"(d[103]), "+f"(d[104]), "+f"(d[105]), "+f"(d[106]), "+f"(d[107]),          \
      "+f"(d[108]), "+f"(d[109]), "+f"(d[110]), "+f"(d[111]), "+f"(d[112]), "+f"(d[113]),          \
      "+f"(d[114]), "+f"(d[115]), "+f"(d[116]), "+f"(d[117]), "+f"(d[118]), "+f"(d[119]),          \
      "+f"(d[120]), "+f"(d[121]), "+f"(d[122]), "+f"(d[123]), "+f"(d[124]), "+f"(d[125]),          \
      "+f"(d[126]), "+f"(d[127])

// Multiplies 16 columns of A by 16 rows of B. `accumulate` false: D is overwritten.
// kTransposed*: the operand is stored with its M (or N) axis contiguous instead of K.
// Thread t of a warpgroup (warp w = t / 32, lane l = t % 32) holds of D, for j < N / 8:
//   d[4j + 0..1] = D[16w + l/4    ][8j + 2(l%4) + 0..1]
//   d[4j + 2..3] = D[16w + l/4 + 8][8j + 2(l%4) + 0..1]
// and of a 64x16 operand A: a[0..3] = the packed pairs of d[0..1], d[2..3], d[4..5], d[6..7] above.
template <class T, int N>
struct Wgmma;

#define TS_WGMMA_OF(T, TYPE, N, R, R1, R2, R3, R4, R5, R6)                                       \
  template <>                                                                                    \
  struct Wgmma<T, N> {                                                                           \
    template <int kTransposedA, int kTransposedB>                                                \
    static __device__ __forceinline__ void ss(float (&d)[R], std::uint64_t a, std::uint64_t b,   \
                                              int accumulate) {                                  \
      asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #R2                                      \
                   ", 0;\n"                                                                      \
                   "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE               \
                   " {" TS_INDICES_##R "}, %" #R ", %" #R1 ", p, 1, 1, %" #R3 ", %" #R4 ";\n}\n" \
                   : TS_REGISTERS_##R                                                            \
                   : "l"(a), "l"(b), "r"(accumulate), "n"(kTransposedA), "n"(kTransposedB));     \
    }                                                                                            \
    template <int kTransposedB>                                                                  \
    static __device__ __forceinline__ void rs(float (&d)[R], const std::uint32_t* a,             \
                                              std::uint64_t b, int accumulate) {                 \
      asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #R5                                      \
                   ", 0;\n"                                                                      \
                   "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE               \
                   " {" TS_INDICES_##R "}, {%" #R ", %" #R1 ", %" #R2 ", %" #R3 "}, %" #R4       \
                                       ", p, 1, 1, %" #R6 ";\n}\n"                               \
                   : TS_REGISTERS_##R                                                            \
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate),        \
                     "n"(kTransposedB));                                                         \
    }                                                                                            \
  };
#define TS_WGMMA(...)                             \
  TS_WGMMA_OF(__nv_bfloat16, "bf16", __VA_ARGS__) \
  TS_WGMMA_OF(__half, "f16", __VA_ARGS__)

TS_WGMMA(48, 24, 25, 26, 27, 28, 29, 30)
TS_WGMMA(64, 32, 33, 34, 35, 36, 37, 38)
TS_WGMMA(80, 40, 41, 42, 43, 44, 45, 46)
TS_WGMMA(96, 48, 49, 50, 51, 52, 53, 54)
TS_WGMMA(112, 56, 57, 58, 59, 60, 61, 62)
TS_WGMMA(128, 64, 65, 66, 67, 68, 69, 70)
TS_WGMMA(144, 72, 73, 74, 75, 76, 77, 78)
TS_WGMMA(160, 80, 81, 82, 83, 84, 85, 86)
TS_WGMMA(176, 88, 89, 90, 91, 92, 93, 94)
TS_WGMMA(192, 96, 97, 98, 99, 100, 101, 102)
TS_WGMMA(256, 128, 129, 130, 131, 132, 133, 134)

#undef TS_WGMMA
#undef TS_WGMMA_OF
#undef TS_INDICES_24
#undef TS_REGISTERS_24
#undef TS_INDICES_32
#undef TS_REGISTERS_32
#undef TS_INDICES_40
#undef TS_REGISTERS_40
#undef TS_INDICES_48
#undef TS_REGISTERS_48
#undef TS_INDICES_56
#undef TS_REGISTERS_56
#undef TS_INDICES_64
#undef TS_REGISTERS_64
#undef TS_INDICES_72
#undef TS_REGISTERS_72
#undef TS_INDICES_80
#undef TS_REGISTERS_80
#undef TS_INDICES_88
#undef TS_REGISTERS_88
#undef TS_INDICES_96
#undef TS_REGISTERS_96
#undef TS_INDICES_128
#undef TS_REGISTERS_128

}  // namespace tracestep::cuda
