// The text of fused kernels: what it says, and, where NVRTC is, that it compiles. Neither needs a
// GPU; that the kernels compute what the ops compute is tested on one (backends/).
#include <dlfcn.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "codegen/bodies.h"
#include "ir/parse.h"
#include "ops/functions.h"

namespace tracestep {
namespace {

using testing::fused_bodies;
using ::testing::HasSubstr;
using testing::kernel_of;
using ::testing::Not;

TEST(FusedTextTest, ANormKeepsItsRowInRegistersAndReadsItOnce) {
  const FusedText text = kernel_of(fused_bodies().at("residual_norm"));
  EXPECT_EQ(text.kernel, R"(using Index = unsigned;
extern "C" __global__ void __launch_bounds__(128)
fused_kernel(const BF16* __restrict__ x0, const float* __restrict__ x1, const float* __restrict__ x2, float* __restrict__ y0, float* __restrict__ y1, BF16* __restrict__ y2) {
  wait_for_predecessors();
  const unsigned lane = threadIdx.x % 32u;
  const Index row = Index{blockIdx.x} * 4u + threadIdx.x / 32u;
  if (row >= 6u) return;
  const Index c1 = row;
  float v0[4] = {};
  float v1[4] = {};
  float v2[4] = {};
  #pragma unroll
  for (int k = 0; k < 1; ++k) {
    const Index column = (k * 32u + lane) * 4u;
    if (column >= 8u) continue;
    const Index c0 = column;
    load_pack<4>(x0 + c0 + c1 * 8u, v0 + k * 4);
    load_pack<4>(x1 + c0 + c1 * 8u, v1 + k * 4);
    load_pack<4>(x2 + c0, v2 + k * 4);
  }
  float v3[4];
  #pragma unroll
  for (int j = 0; j < 4; ++j) {
    v3[j] = v0[j];
  }
  float v4[4];
  #pragma unroll
  for (int j = 0; j < 4; ++j) {
    v4[j] = Add()(Alone{v1[j]}, Alone{v3[j]}).v;
  }
  float v5[4];
  #pragma unroll
  for (int j = 0; j < 4; ++j) {
    v5[j] = Square()(Real{v4[j]}).v;
  }
  float p0 = 0.0f;
  #pragma unroll
  for (int j = 0; j < 4; ++j) {
    if (((j / 4) * 32u + lane) * 4u >= 8u) continue;
    p0 = Plus()(p0, v5[j]);
  }
  const float v6 = row_reduce<Plus, 32>(p0, 0.0f, nullptr);
  float v7;
  v7 = Affine()(Real{v6}, Real{0.125f}, Real{1e-05f}).v;
  float v8;
  v8 = Rsqrt()(Real{v7}).v;
  float v10[4];
  #pragma unroll
  for (int j = 0; j < 4; ++j) {
    v10[j] = Mul()(Real{v4[j]}, Real{v8}).v;
  }
  float v12[4];
  #pragma unroll
  for (int j = 0; j < 4; ++j) {
    v12[j] = Mul()(Real{v2[j]}, Real{v10[j]}).v;
  }
  float v15[4];
  #pragma unroll
  for (int j = 0; j < 4; ++j) {
    v15[j] = rounded<BF16>(v12[j]);
  }
  if (y1 != nullptr && lane == 0) set(y1[c1], v8);
  #pragma unroll
  for (int k = 0; k < 1; ++k) {
    const Index column = (k * 32u + lane) * 4u;
    if (column >= 8u) continue;
    const Index c0 = column;
    if (y0 != nullptr) store_pack<4>(y0 + c0 + c1 * 8u, v4 + k * 4);
    if (y2 != nullptr) store_pack<4>(y2 + c0 + c1 * 8u, v15 + k * 4);
  }
}
)");
  EXPECT_EQ(text.blocks, 2u);
  EXPECT_EQ(text.threads, 128u);
}

TEST(FusedTextTest, ARotationReadsItsAnglesByPairsAndWritesForItsReader) {
  const FusedText text = kernel_of(fused_bodies().at("rotation_for_a_reader"));
  EXPECT_THAT(text.kernel, HasSubstr("load_pack<2>(x1 + (c0 + c1 * 8u) / 2u, v1 + k * 2);"));
  EXPECT_THAT(text.kernel, HasSubstr("Rotate()(Real{v3[j]}, Real{v3[j + 1]}, Real{v1[j / 2]}, "
                                     "Real{-v2[j / 2]});"));
  // [2,3,4,8] is written as [2,4,3,8].
  EXPECT_THAT(text.kernel, HasSubstr("store_pack<4>(y0 + c0 + c1 * 24u + c2 * 8u + c3 * 96u"));
}

TEST(FusedTextTest, ARotationByHalvesReadsAndWritesBothHalvesOfARow) {
  const std::string body = fused_bodies().at("rotation_by_halves");
  const std::string text = kernel_of(body).kernel;
  EXPECT_THAT(text, HasSubstr("load_halves<4, true>(x0 + c0 / 2u + c1 * 8u + c2 * 32u + c3 * 96u, "
                              "1, 4, v0 + k * 4);"));
  EXPECT_THAT(text, HasSubstr("load_halves<4, true>(x1 + c0 / 2u, 1, 4, v1 + k * 4);"));
  EXPECT_THAT(text, HasSubstr("load_pack<2>(x2 + (c0 + c1 * 8u) / 2u, v2 + k * 2);"));
  EXPECT_THAT(text, HasSubstr("store_halves<4, true>(y0 + c0 / 2u + c1 * 24u + c2 * 8u + c3 * 96u, "
                              "1, 4, v"));
  EXPECT_THAT(kernel_of(body, 2).kernel, HasSubstr("load_halves<4, false>(x0"));
}

TEST(FusedTextTest, PacksAreAsWideAsAlignmentAndSizesAllow) {
  const std::string body = fused_bodies().at("every_elementwise_op");
  EXPECT_THAT(kernel_of(body, 16).kernel, HasSubstr("load_pack<4>(x0"));
  EXPECT_THAT(kernel_of(body, 8).kernel, HasSubstr("load_pack<4>(x0"));   // four of 2 bytes
  EXPECT_THAT(kernel_of(body, 8).kernel, HasSubstr("store_each<4>(y0"));  // four of 4 bytes
  EXPECT_THAT(kernel_of(body, 2).kernel, HasSubstr("load_each<4>(x0"));
  EXPECT_THAT(kernel_of(fused_bodies().at("odd_rows")).kernel, Not(HasSubstr("_pack<4>")));
}

TEST(FusedTextTest, AScalarIsReadOnce) {
  EXPECT_THAT(kernel_of(fused_bodies().at("every_elementwise_op")).kernel,
              HasSubstr("const float v2 = to_float(x2[0]);"));
}

TEST(FusedTextTest, StridesAndRepeatedDimensionsAreFollowed) {
  ops::register_all();
  const Program body = parse_program(R"(program "body" {
    input %a : f32[6,8]
    input %b : f32[6,8]
    %0 : f32[6,8] = add(%a, %b)
    output "y" = %0
  })");
  const std::vector<FusedOperand> leaves{{{1, 6}, 16}, {{0, 1}, 16}}, outputs{{{8, 1}, 16}};
  const std::string text = write_fused_kernel(*find_walk(body), leaves, outputs).kernel;
  EXPECT_THAT(text, HasSubstr("load_each<4>(x0 + c0 * 6u + c1, 6, v0"));  // transposed
  EXPECT_THAT(text, HasSubstr("load_pack<4>(x1 + c0, v1"));               // one row for all
  EXPECT_THAT(text, HasSubstr("store_pack<4>(y0 + c0 + c1 * 8u"));
}

TEST(FusedTextTest, RowsAreSharedByMoreThreadsAsTheyGrow) {
  const FusedText text = kernel_of(fused_bodies().at("long_rows"));
  EXPECT_EQ(text.blocks, 3u);
  EXPECT_EQ(text.threads, 320u);  // 1250 packs of 4, four to a thread
  EXPECT_THAT(text.kernel, HasSubstr("__shared__ float s0[32];"));
}

TEST(FusedTextTest, ABlockGoesThroughItsRowsAndAddsThemUp) {
  const FusedText text = kernel_of(fused_bodies().at("norm_gradient"));
  EXPECT_EQ(text.blocks, 4u);
  EXPECT_EQ(text.threads, 96u);  // 66 packs of 4
  EXPECT_THAT(text.kernel, HasSubstr("  float v10[4] = {};\n"
                                     "  for (unsigned r = group, turn = 0; r < 3u; r += 1u) {"));
  EXPECT_THAT(text.kernel, HasSubstr("v10[j] = Plus()(v10[j], v8[j]);"));
  EXPECT_THAT(text.kernel, HasSubstr("row_reduce<Plus, 96>(p0, 0.0f, s0 + turn * 32u)"));
  EXPECT_THAT(text.kernel, HasSubstr("turn ^= 1u;\n  }\n"));
  EXPECT_THAT(text.kernel, HasSubstr("store_pack<4>(y0 + c0 + c2 * 264u, v10 + k * 4);"));
}

TEST(FusedTextTest, AFewBlocksTakeRowsSideBySideAndAddTheirSums) {
  const FusedText text = kernel_of(fused_bodies().at("norm_and_bias_gradient"));
  EXPECT_EQ(text.blocks, 2u);
  EXPECT_EQ(text.threads, 4 * 96u);
  EXPECT_THAT(text.kernel, HasSubstr("__launch_bounds__(384, 2)"));
  EXPECT_THAT(text.kernel, HasSubstr("for (unsigned r = group, turn = 0; r < 8u; r += 4u) {"));
  EXPECT_THAT(text.kernel, HasSubstr("row_reduce<Plus, 96, 4>(p0, 0.0f, s0 + turn * 32u)"));
  // The sum of a bias is of the narrow values, in float32.
  EXPECT_THAT(text.kernel, HasSubstr("v12[j] = rounded<BF16>(v11[j]);"));
  EXPECT_THAT(text.kernel, HasSubstr("v14[j] = Plus()(v14[j], v12[j]);"));
  EXPECT_THAT(text.kernel, HasSubstr("  add_groups<4, 96, 4>(v6);\n  add_groups<4, 96, 4>(v14);\n"
                                     "  if (group > 0) return;\n"));
}

TEST(FusedTextTest, WhereNoRowIsReducedColumnsAreSummedInTiles) {
  const FusedText text = kernel_of(fused_bodies().at("bias_gradient"));
  EXPECT_EQ(text.blocks, 2 * 5u);  // 520 packs of 4 in tiles of 128
  EXPECT_EQ(text.threads, 4 * 128u);
  EXPECT_THAT(text.kernel,
              HasSubstr("const Index tile = blockIdx.x % 5u, block = blockIdx.x / 5u;"));
  EXPECT_THAT(text.kernel, HasSubstr("const Index column = (tile * 128u + lane) * 4u;"));
  EXPECT_THAT(text.kernel, HasSubstr("if (column >= 2080u) continue;"));
  EXPECT_THAT(text.kernel,
              HasSubstr("#pragma unroll 2\n  for (unsigned r = group; r < 8u; r += 4u) {"));
  EXPECT_THAT(text.kernel, HasSubstr("add_groups<4, 128, 4>(v"));
}

TEST(FusedTextTest, WhatNoWalkReachesHasNoKernel) {
  ops::register_all();
  const auto has_walk = [](const char* text) { return find_walk(parse_program(text)).has_value(); };
  EXPECT_FALSE(has_walk(R"(program "columns" {
    input %x : f32[4,6]
    %0 : f32[6] = sum(%x) {axes=[0]}
    output "y" = %0
  })"));
  EXPECT_FALSE(has_walk(R"(program "too many rows for a block" {
    input %x : f32[4,33,6]
    %0 : f32[4,6] = sum(%x) {axes=[1]}
    output "y" = %0
  })"));
  EXPECT_FALSE(has_walk(R"(program "a sum that is not complete yet" {
    input %x : f32[4,8,6]
    %0 : f32[4,6] = sum(%x) {axes=[1]}
    %1 : f32[4,6] = exp(%0)
    output "y" = %1
  })"));
  EXPECT_FALSE(has_walk(R"(program "indices" {
    input %x : i64[4]
    %0 : i64[4] = add(%x, %x)
    output "y" = %0
  })"));
  EXPECT_FALSE(has_walk(R"(program "part" {
    input %x : f32[4]
    %0 : f32[4] = exp(%x)
    %1 : f32[2] = slice(%0) {axis=0, start=0, stop=2}
    output "y" = %1
  })"));
  EXPECT_FALSE(has_walk(R"(program "repeated result" {
    input %x : f32[4]
    input %z : f32[3,4]
    %0 : f32[4] = exp(%x)
    %1 : f32[3,4] = broadcast(%0) {shape=[3,4]}
    %2 : f32[3,4] = add(%1, %z)
    output "once" = %0
    output "y" = %2
  })"));
  const std::string rotations = R"(program "rotations" {
    input %x : f32[4,8]
    input %cos : f32[4,4]
    input %sin : f32[4,4]
    %0 : f32[4,8] = rope(%x, %cos, %sin) {halves=true}
    %1 : f32[4,8] = rope(%0, %cos, %sin) {halves=true}
    output "y" = %1
  })";
  EXPECT_TRUE(has_walk(rotations.c_str()));
  std::string mixed = rotations;  // neighbours, and then halves
  mixed.replace(mixed.find(" {halves=true}"), 14, "");
  EXPECT_FALSE(has_walk(mixed.c_str()));
  EXPECT_FALSE(has_walk(R"(program "an operand of half a row" {
    input %x : f32[4,8]
    input %s : f32[2,1]
    input %cos : f32[4,4]
    input %sin : f32[4,4]
    %0 : f32[4,8] = rope(%x, %cos, %sin) {halves=true}
    %1 : f32[4,2,4] = reshape(%0) {shape=[4,2,4]}
    %2 : f32[4,2,4] = broadcast(%s) {shape=[4,2,4]}
    %3 : f32[4,2,4] = mul(%1, %2)
    output "y" = %3
  })"));
  EXPECT_FALSE(has_walk(R"(program "two orders" {
    input %x : f32[4,4]
    %0 : f32[4,4] = exp(%x)
    %1 : f32[4,4] = permute(%0) {axes=[1,0]}
    %2 : f32[4,4] = add(%0, %1)
    output "y" = %2
  })"));
}

// --- the compiler -------------------------------------------------------------------------------
// The functions of NVRTC that are used, declared here as a machine may lack nvrtc.h.
struct Compiler {
  using Program = void*;
  int (*create)(Program*, const char*, const char*, int, const char* const*, const char* const*);
  int (*compile)(Program, int, const char* const*);
  int (*log_size)(Program, std::size_t*);
  int (*log)(Program, char*);
  int (*destroy)(Program*);

  static const Compiler* find() {
    for (const char* name : {"libnvrtc.so.13", "/usr/local/cuda/lib64/libnvrtc.so",
                             "/usr/local/cuda-13/lib64/libnvrtc.so.13"}) {
      void* library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
      if (library == nullptr) continue;
      static Compiler found;
      const auto get = [&]<class F>(F& f, const char* symbol) {
        f = reinterpret_cast<F>(dlsym(library, symbol));
      };
      get(found.create, "nvrtcCreateProgram");
      get(found.compile, "nvrtcCompileProgram");
      get(found.log_size, "nvrtcGetProgramLogSize");
      get(found.log, "nvrtcGetProgramLog");
      get(found.destroy, "nvrtcDestroyProgram");
      return &found;
    }
    return nullptr;
  }

  // The compiler's words; empty: it has nothing to say.
  std::string words(const std::string& text, const char* architecture) const {
    Program program = nullptr;
    create(&program, text.c_str(), "fused.cu", 0, nullptr, nullptr);
    const char* options[] = {architecture, "--std=c++20"};
    const int status = compile(program, 2, options);
    std::size_t size = 0;
    log_size(program, &size);
    std::string out(size, ' ');
    log(program, out.data());
    destroy(&program);
    out.resize(std::strlen(out.c_str()));
    return status != 0 && out.empty() ? "it failed" : out;
  }
};

TEST(FusedTextTest, TheCompilerTakesEveryBodyWithoutAWord) {
  const Compiler* compiler = Compiler::find();
  if (compiler == nullptr) GTEST_SKIP() << "libnvrtc.so.13 is not there";
  for (const auto& [name, body] : fused_bodies()) {
    for (int alignment : {16, 2}) {
      const std::string text = with_device_text(kernel_of(body, alignment).kernel);
      for (const char* architecture : {"--gpu-architecture=sm_80", "--gpu-architecture=sm_90"}) {
        EXPECT_EQ(compiler->words(text, architecture), "") << name << ", " << architecture;
      }
    }
  }
}

// Who launches takes the blocks of the call's own text: a full block names no size.
TEST(FusedTextTest, TextsOfFullBlocksAreTheSameForOtherSizes) {
  const auto text_of = [](int rows) {
    return kernel_of(fmt::format(R"(program "body" {{
  input %x : f32[{0},4096]
  %0 : f32[{0},4096] = mul(%x, %x)
  %1 : f32[{0},4096] = neg(%0)
  output "y" = %1
}})",
                                 rows));
  };
  const FusedText small = text_of(8), large = text_of(64);
  EXPECT_EQ(small.kernel, large.kernel);
  EXPECT_EQ(8 * small.blocks, large.blocks);
}

}  // namespace
}  // namespace tracestep
