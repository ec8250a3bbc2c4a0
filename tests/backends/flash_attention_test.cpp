// Tiled attention as a whole: values, gradients and log-sum-exps against the float64 oracle's naive
// formula, scores that strain the running maximum, masks to the bit, and the same bits whoever
// computes them.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <utility>

#include "backends/cpu/bf16_products.h"
#include "ops/functions.h"
#include "passes/autograd.h"
#include "passes/form_passes.h"
#include "support/backends.h"
#include "support/host_values.h"
#include "support/run_program.h"
#ifdef TRACESTEP_WITH_CUDA
#include "backends/cuda/attention/portable.h"
#include "backends/cuda/cuda_device.h"
#endif

namespace tracestep::testing {
namespace {

struct Sizes {
  Shape q;
  std::int64_t keys = 0;
  bool causal = true;
  DType dtype = DType::kF32;
  double scale = 0.0;                        // 0: 1/sqrt(D)
  std::int64_t group = 1;                    // heads of q that share one of k and v
  std::int64_t window = 0;                   // keys that a query sees; 0: all
  std::vector<std::int64_t> documents = {};  // their lengths, in a row; none: it is one text
};

Type keys_of(const Sizes& s) {
  Shape shape = s.q;
  shape[shape.rank() - 2] = s.keys;
  if (s.group > 1) shape[shape.rank() - 3] /= s.group;
  return {s.dtype, shape};
}

// [H/group, T, D] as [H, T, D]: each head with a copy of its keys.
Val for_each_head(Val x, std::int64_t group) {
  if (group == 1) return x;
  const std::int64_t heads = x.dim(0), rows = x.dim(1), width = x.dim(2);
  const Val one_each = ops::reshape(x, {heads, 1, rows, width});
  return ops::reshape(ops::broadcast_to(one_each, {heads, group, rows, width}),
                      {heads * group, rows, width});
}

double scale_of(const Sizes& s) {
  return s.scale != 0.0 ? s.scale : 1.0 / std::sqrt(static_cast<double>(s.q.back()));
}

Program differentiated(Builder& b, Val y) {
  Dims all;
  for (int i = 0; i < y.shape().rank(); ++i) all.push_back(i);
  b.output("loss", ops::sum(ops::mul(y, b.input("dy", y.type())), all));
  return autograd(b.finish(), {.inputs = true});
}

// Outputs "y", "lse", "loss" and the gradients of all inputs.
Program flash_program(const Sizes& s) {
  ops::register_all();
  Builder b("flash");
  const Val q = b.input("q", {s.dtype, s.q});
  const Val k = b.input("k", keys_of(s)), v = b.input("v", keys_of(s));
  std::vector<Val> operands{q, k, v};
  if (!s.documents.empty()) {
    const Type places{DType::kI64, {s.q.back(1)}};
    operands.push_back(b.input("starts", places));
    operands.push_back(b.input("ends", places));
  }
  const std::vector<Val> results = b.call(
      find_op("flash_attention"), operands,
      {{"scale", scale_of(s)}, {"causal", s.causal}, {"token_major", false}, {"window", s.window}});
  b.output("y", results[0]);
  b.output("lse", results[1]);
  return differentiated(b, results[0]);
}

// The outputs of flash_program(), from two products around a softmax.
Program naive_program(const Sizes& s) {
  ops::register_all();
  Builder b("naive");
  const Val q = b.input("q", {s.dtype, s.q});
  const Val k = b.input("k", keys_of(s)), v = b.input("v", keys_of(s));
  const Val keys = for_each_head(k, s.group), values = for_each_head(v, s.group);
  Val scores = ops::affine(ops::matmul(q, keys, {.transpose_b = true}), scale_of(s));
  if (s.window > 0) {
    const Val seen = ops::window_mask(b, scores.dim(-2), scores.dim(-1), s.window);
    const double hidden = -std::numeric_limits<double>::infinity();
    scores = ops::select(seen, scores, ops::fill(b, hidden, {s.dtype, {}}));
  }
  const Val y = ops::matmul(ops::softmax(scores, {.scale = 1.0, .causal = s.causal}), values);
  b.output("y", y);
  return differentiated(b, y);
}

Tensors leaves_of(const Program& program, double reach = 1.0) {
  Tensors out;
  for (ValueId id : program.leaves) {
    const Value& leaf = program.value(id);
    const bool is_score = leaf.name == "q" || leaf.name == "k";
    const double r = is_score ? reach : 1.0;
    out[leaf.name] = random_tensor(leaf.type, leaf.name, -r, r);
  }
  return out;
}

// Where the document of each place begins, and where it ends.
void set_bounds(const Sizes& s, Tensors& leaves) {
  if (s.documents.empty()) return;
  std::vector<double> starts, ends;
  for (const std::int64_t length : s.documents) {
    const std::size_t begin = starts.size(), end = begin + static_cast<std::size_t>(length);
    starts.resize(end, static_cast<double>(begin));
    ends.resize(end, static_cast<double>(end));
  }
  const Shape places{s.q.back(1)};
  leaves["starts"] = from_doubles(DType::kI64, places, starts);
  leaves["ends"] = from_doubles(DType::kI64, places, ends);
}

const std::vector<std::string>& compared() {
  static const std::vector<std::string> names{"y", "grad.q", "grad.k", "grad.v"};
  return names;
}

// Twice the error of the unfused form in the same dtype, and a few roundings of the largest value
// or of the terms that it is a sum of.
void expect_as_good_as_naive(const Sizes& s, const Tensors& leaves, double largest_term = 0) {
  const Program flash = flash_program(s), naive = naive_program(s);
  const Tensors exact = reference_values(naive, leaves);
  for (const Backend& backend : backends_under_test()) {
    const auto device = backend.make({.threads = 2, .guarded = true});
    const Tensors got = run_program(*device, flash, leaves);
    const Tensors unfused = run_program(*device, naive, leaves);
    for (const std::string& name : compared()) {
      const std::vector<double> expected = to_doubles(exact.at(name));
      const double largest = max_abs(expected);
      const double term = name == "y" ? largest : std::max(largest, largest_term);
      const double floor =
          16 * 0x1p-24 * term + (is_low_precision(s.dtype) ? 2 * ulp(s.dtype, term) : 0);
      EXPECT_LE(max_difference(to_doubles(got.at(name)), expected),
                2 * max_difference(to_doubles(unfused.at(name)), expected) + floor)
          << backend.name << " " << name;
    }
  }
}

// rtol = atol = 1e-2 on every element, of what the naive formula gives in float64.
TEST(FlashAttentionTest, FourHeadsOf128By64AreWithinAHundredth) {
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    for (bool causal : {true, false}) {
      const Sizes s{.q = {4, 128, 64}, .keys = 128, .causal = causal, .dtype = dtype};
      const Program program = flash_program(s);
      const Tensors leaves = leaves_of(program, 2.0);
      Tensors exact = reference_values(naive_program(s), leaves);
      exact["lse"] = reference_values(program, leaves).at("lse");
      for (const Backend& backend : backends_under_test()) {
        const auto device = backend.make({});
        const Tensors got = run_program(*device, program, leaves);
        for (const char* name : {"y", "lse", "grad.q", "grad.k", "grad.v"}) {
          const std::vector<double> a = to_doubles(got.at(name)), b = to_doubles(exact.at(name));
          ASSERT_EQ(a.size(), b.size());
          for (std::size_t i = 0; i < a.size(); ++i) {
            ASSERT_NEAR(a[i], b[i], 1e-2 + 1e-2 * std::abs(b[i])) << backend.name << " " << name;
          }
        }
      }
    }
  }
}

TEST(FlashAttentionTest, ErrorsAreNoMoreThanTwiceThoseOfTheNaiveForm) {
  for (DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    for (bool causal : {true, false}) {
      const Sizes s{.q = {149, 80}, .keys = 211, .causal = causal, .dtype = dtype};
      SCOPED_TRACE(std::string(name_of(dtype)) + (causal ? " causal" : ""));
      expect_as_good_as_naive(s, leaves_of(flash_program(s)));
    }
  }
}

// Compares with keys and values that are copied for each head, and gradients that are summed
// afterwards. 150 and 300 tokens are several tiles of every kernel.
TEST(FlashAttentionTest, HeadsThatShareKeysAreAsGoodAsHeadsWithCopies) {
  struct Case {
    std::int64_t heads, group, tokens, width;
  };
  for (const Case& c : {Case{2, 2, 301, 64}, Case{4, 2, 149, 128}, Case{8, 8, 149, 24},
                        Case{6, 3, 149, 80}, Case{4, 4, 83, 256}}) {
    for (DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
      for (bool causal : {true, false}) {
        const Sizes s{.q = {c.heads, c.tokens, c.width},
                      .keys = c.tokens + (causal ? 6 : -6),
                      .causal = causal,
                      .dtype = dtype,
                      .group = c.group};
        SCOPED_TRACE(std::string(name_of(dtype)) + (causal ? " causal " : " ") + s.q.str());
        expect_as_good_as_naive(s, leaves_of(flash_program(s)));
      }
    }
  }
}

// Windows shorter than a tile, about as long, and over several tiles.
TEST(FlashAttentionTest, WindowsAreAsGoodAsScoresThatAreHidden) {
  struct Case {
    std::int64_t heads, group, tokens, width, window;
  };
  for (const Case& c : {Case{2, 1, 301, 64, 7}, Case{2, 2, 421, 64, 200}, Case{2, 1, 277, 128, 64},
                        Case{3, 3, 301, 80, 129}, Case{2, 2, 301, 24, 100}, Case{3, 3, 149, 96, 33},
                        Case{2, 1, 149, 200, 31}}) {
    for (DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
      const Sizes s{.q = {c.heads, c.tokens, c.width},
                    .keys = c.tokens + 3,
                    .dtype = dtype,
                    .group = c.group,
                    .window = c.window};
      SCOPED_TRACE(std::string(name_of(dtype)) + " " + s.q.str());
      expect_as_good_as_naive(s, leaves_of(flash_program(s)));
    }
  }
}

// The only weight is 1 whatever the score, so dq and dk are 0 and dv is the sum of dy. What is left
// of dq and dk is measured by the terms that cancel.
TEST(FlashAttentionTest, OneKeyForEverybodyTakesAllOfTheGradient) {
  for (const Shape& q : {Shape{1, 16}, Shape{2, 67, 16}}) {
    const Sizes s{.q = q, .keys = 1, .causal = false};
    SCOPED_TRACE(q.str());
    expect_as_good_as_naive(s, leaves_of(flash_program(s)), 16.0);
  }
}

// Scores of some 10,000 of both signs: nearly all weights are 0 or 1, and the others depend on the
// last bits of the scores and of the log-sum-exp.
TEST(FlashAttentionTest, LargeScoresNeitherOverflowNorVanish) {
  struct Case {
    std::int64_t rows, width;
    double reach;  // of q and k
  };
  for (const Case& c : {Case{67, 16, 60.0}, Case{150, 64, 42.0}, Case{131, 128, 35.0}}) {
    for (DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
      for (bool causal : {true, false}) {
        const Sizes s{.q = {4, c.rows, c.width},
                      .keys = c.rows,
                      .causal = causal,
                      .dtype = dtype,
                      .scale = 1.0};
        SCOPED_TRACE(std::string(name_of(dtype)) + (causal ? " causal " : " ") + s.q.str());
        const Program program = flash_program(s);
        const Tensors leaves = leaves_of(program, c.reach);
        const Tensors exact = reference_values(program, leaves);
        EXPECT_GT(max_abs(to_doubles(exact.at("lse"))), 9000);
        expect_as_good_as_naive(s, leaves, c.reach);
      }
    }
  }
}

TEST(FlashAttentionTest, EqualScoresGiveTheMeanOfWhatIsVisible) {
  const Sizes s{.q = {1, 83, 32}, .keys = 83};
  const Program program = flash_program(s);
  Tensors leaves = leaves_of(program);
  for (const char* name : {"q", "k"}) {
    std::vector<double> same(static_cast<std::size_t>(leaves.at(name).shape.product()), 12.5);
    leaves[name] = from_doubles(DType::kF32, leaves.at(name).shape, same);
  }
  const std::vector<double> v = to_doubles(leaves.at("v"));
  for (const Backend& backend : backends_under_test()) {
    const auto device = backend.make({});
    const std::vector<double> y = to_doubles(run_program(*device, program, leaves).at("y"));
    std::vector<double> sums(32, 0.0);
    for (std::size_t i = 0; i < y.size(); ++i) {
      sums[i % 32] += v[i];
      EXPECT_NEAR(y[i], sums[i % 32] / static_cast<double>(i / 32 + 1), 1e-6) << backend.name;
    }
  }
}

TEST(FlashAttentionTest, TheFirstCausalRowIsItsValueAndTheFutureChangesNoBit) {
  const Sizes s{.q = {2, 203, 24}, .keys = 203};
  const Program program = flash_program(s);
  const Tensors leaves = leaves_of(program);
  Tensors later = leaves;  // other keys and values from row 100 on
  constexpr std::int64_t kFrom = 100;
  for (const char* name : {"k", "v"}) {
    const std::span<float> values = later.at(name).as<float>();
    for (std::int64_t i = 0; i < std::ssize(values); ++i) {
      if (i / 24 % 203 >= kFrom) values[static_cast<std::size_t>(i)] *= -3.0f;
    }
  }
  for (const Backend& backend : backends_under_test()) {
    const auto device = backend.make({});
    const std::vector<double> y = to_doubles(run_program(*device, program, leaves).at("y"));
    const std::vector<double> other = to_doubles(run_program(*device, program, later).at("y"));
    const std::vector<double> v = to_doubles(leaves.at("v"));
    for (std::size_t i = 0; i < y.size(); ++i) {
      const std::int64_t row = static_cast<std::int64_t>(i) / 24 % 203;
      if (row == 0) {
        EXPECT_NEAR(y[i], v[i], 1e-6) << backend.name;  // values come in two parts
      }
      if (row < kFrom) {
        ASSERT_EQ(y[i], other[i]) << backend.name << " row " << row;
      }
    }
  }
}

// Several blocks of keys, so that many threads take turns at the gradient of the queries.
TEST(FlashAttentionTest, SixteenThreadsGiveTheBitsOfOne) {
  for (DType dtype : {DType::kF32, DType::kBF16}) {
    struct Case {
      bool causal;
      std::int64_t group = 1, window = 0;
    };
    for (const Case& c : {Case{true}, Case{false}, Case{true, 2}, Case{true, 1, 150}}) {
      const Sizes s{.q = {2, 401, 72},
                    .keys = 401,
                    .causal = c.causal,
                    .dtype = dtype,
                    .group = c.group,
                    .window = c.window};
      const Program program = flash_program(s);
      const Tensors leaves = leaves_of(program);
      const Backend& cpu = backend_named("cpu");
      const auto one = cpu.make({.threads = 1}), many = cpu.make({.threads = 16});
      const Tensors expected = run_program(*one, program, leaves);
      for (int run = 0; run < 2; ++run) {
        for (const auto& [name, tensor] : run_program(*many, program, leaves)) {
          EXPECT_TRUE(tensor.bytes == expected.at(name).bytes) << name << " has other bits";
        }
      }
    }
  }
}

// Runs often, with thousands of blocks that race.
TEST(FlashAttentionTest, RepeatsHaveTheSameBits) {
  struct Case {
    DType dtype;
    std::int64_t group = 1, window = 0;
    std::vector<std::int64_t> documents = {};
  };
  for (const Case& c : {Case{DType::kBF16}, Case{DType::kF32}, Case{DType::kBF16, 3},
                        Case{DType::kBF16, 3, 70}, Case{DType::kBF16, 3, 0, {100, 1, 9, 40}}}) {
    const Sizes s{.q = {3, 150, 64},
                  .keys = 150,
                  .dtype = c.dtype,
                  .group = c.group,
                  .window = c.window,
                  .documents = c.documents};
    const Program program = flash_program(s);
    Tensors leaves = leaves_of(program);
    set_bounds(s, leaves);
    for (const Backend& backend : backends_under_test()) {
      const auto device = backend.make({});
      const Tensors expected = run_program(*device, program, leaves);
      const int runs = device->is_asynchronous() ? 1000 : 20;
      for (int run = 0; run < runs; ++run) {
        for (const auto& [name, tensor] : run_program(*device, program, leaves)) {
          ASSERT_TRUE(tensor.bytes == expected.at(name).bytes) << backend.name << " " << name;
        }
      }
    }
  }
}

// bfloat16 by tiles of the processor, emulated where it has none: several panels of queries, blocks
// of keys, heads that share keys, windows, and widths of one tile and of three.
constexpr auto kEmulated = cpu::Bf16Products::kEmulatedTiles;

std::vector<Sizes> sizes_for_tiles() {
  return {{.q = {1, 260, 64}, .keys = 260, .dtype = DType::kBF16},
          {.q = {2, 33, 32}, .keys = 70, .causal = false, .dtype = DType::kBF16},
          {.q = {1, 17, 96}, .keys = 140, .dtype = DType::kBF16},
          {.q = {2, 70, 32}, .keys = 210, .dtype = DType::kBF16, .group = 2},
          {.q = {1, 240, 32}, .keys = 240, .dtype = DType::kBF16, .window = 50}};
}

bool has_kernels_of_tiles() {
#ifdef __x86_64__
  return __builtin_cpu_supports("avx512f") != 0;
#else
  return false;
#endif
}

TEST(FlashAttentionTest, TilesAreAsGoodAsTheNaiveForm) {
  if (!has_kernels_of_tiles()) GTEST_SKIP() << "the kernels of tiles are among those for AVX-512";
  for (const Sizes& s : sizes_for_tiles()) {
    SCOPED_TRACE(::testing::Message() << s.q[1] << " queries, " << s.keys << " keys");
    const Program program = flash_program(s);
    const Tensors leaves = leaves_of(program);
    const auto y_by = [&](cpu::Bf16Products products) {
      const cpu::WithBf16Products way(products);
      return run_program(*backend_named("cpu").make({}), program, leaves).at("y").bytes;
    };
    EXPECT_NE(y_by(kEmulated), y_by(cpu::Bf16Products::kWidened)) << "no tiles were used";
    const cpu::WithBf16Products way(kEmulated);
    expect_as_good_as_naive(s, leaves);
  }
}

TEST(FlashAttentionTest, TilesGiveTheSameBitsOnAnyThreads) {
  if (!has_kernels_of_tiles()) GTEST_SKIP() << "the kernels of tiles are among those for AVX-512";
  const cpu::WithBf16Products way(kEmulated);
  const Backend& backend = backend_named("cpu");
  for (const Sizes& s : sizes_for_tiles()) {
    const Program program = flash_program(s);
    const Tensors leaves = leaves_of(program);
    const Tensors expected =
        run_program(*backend.make({.threads = 1, .guarded = true}), program, leaves);
    for (const int threads : {3, 16}) {
      for (const auto& [name, tensor] :
           run_program(*backend.make({.threads = threads}), program, leaves)) {
        EXPECT_TRUE(tensor.bytes == expected.at(name).bytes) << name << ", " << threads;
      }
    }
  }
}

TEST(FlashAttentionTest, TilesOfTheProcessorGiveTheBitsOfEmulatedOnes) {
  if (cpu::tile_support() != cpu::TileSupport::kGranted) {
    GTEST_SKIP() << "this processor has no AMX, or the system does not permit it";
  }
  const Backend& backend = backend_named("cpu");
  for (const Sizes& s : sizes_for_tiles()) {
    const Program program = flash_program(s);
    const Tensors leaves = leaves_of(program);
    const auto run_by = [&](cpu::Bf16Products products) {
      const cpu::WithBf16Products way(products);
      return run_program(*backend.make({.threads = 2}), program, leaves);
    };
    const Tensors expected = run_by(kEmulated);
    for (const auto& [name, tensor] : run_by(cpu::Bf16Products::kTiles)) {
      EXPECT_TRUE(tensor.bytes == expected.at(name).bytes) << name << " has other bits";
    }
  }
}

#ifdef TRACESTEP_WITH_CUDA
// Rounding operands to 10 bits shows, and costs no more than that.
TEST(FlashAttentionTest, Tf32ReachesTheTilesOfAGpu) {
  if (probe_cuda().devices == 0) GTEST_SKIP() << "no GPU";
  const Sizes s{.q = {2, 300, 64}, .keys = 300};
  const Program program = flash_program(s);
  const Tensors leaves = leaves_of(program), exact = reference_values(program, leaves);
  for (const bool tf32 : {false, true}) {
    const auto device = make_cuda_device({.guarded = true, .tf32 = tf32});
    const Tensors got = run_program(*device, program, leaves);
    for (const std::string& name : compared()) {
      const std::vector<double> expected = to_doubles(exact.at(name));
      const double error = max_difference(to_doubles(got.at(name)), expected) / max_abs(expected);
      EXPECT_LE(error, tf32 ? 5e-3 : 5e-6) << name << (tf32 ? " tf32" : " fp32");
      if (tf32) {
        EXPECT_GE(error, 1e-5) << name;
      }
    }
  }
}

// Checks the choice where blocks have less shared memory than on the GPU at hand: on an A100, and
// on GPUs of 8.6 and 8.9.
TEST(FlashAttentionTest, WideHeadsFitSmallerGpus) {
  if (probe_cuda().devices == 0) GTEST_SKIP() << "no GPU";
  for (const int kib : {163, 99}) {
    cuda::limit_portable_shared_memory(kib * 1024);
    for (DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
      for (std::int64_t width : {128, 200}) {
        const Sizes s{.q = {2, 149, width}, .keys = 149, .dtype = dtype};
        SCOPED_TRACE(std::string(name_of(dtype)) + " " + s.q.str());
        expect_as_good_as_naive(s, leaves_of(flash_program(s)));
      }
    }
  }
  cuda::limit_portable_shared_memory(0);
}
#endif

TEST(FlashAttentionTest, TheChosenFormIsTheNaiveOneInFloat64) {
  ops::register_all();
  const std::pair<Shape, Shape> cases[] = {{{2, 3, 21, 8}, {2, 3, 21, 8}},
                                           {{5, 19, 6}, {5, 19, 6}},
                                           {{11, 4}, {11, 4}},
                                           {{2, 6, 21, 8}, {2, 2, 21, 8}}};
  for (const auto& [queries, keys] : cases) {
    Builder b("attention");
    const Val q = b.input("q", {DType::kF64, queries});
    const Val k = b.input("k", {DType::kF64, keys}), v = b.input("v", {DType::kF64, keys});
    b.output("y", ops::attention(q, k, v));
    b.output("windowed", ops::attention(q, k, v, {.window = 3}));
    const Program program = b.finish();
    const Program flash = choose(program, {{"attention", "flash"}});
    const Tensors leaves = leaves_of(program);
    const Tensors expected = reference_values(program, leaves);
    const Tensors got = reference_values(flash, leaves);
    for (const char* name : {"y", "windowed"}) {
      EXPECT_LE(max_difference(to_doubles(got.at(name)), to_doubles(expected.at(name))), 1e-14);
    }
    for (const Node& node : flash.nodes) EXPECT_NE(node.op->name, "softmax");
    EXPECT_THROW(choose(program, {{"attention", "sparse"}}), Error);
  }
}

TEST(FlashAttentionTest, WhatNoTileHoldsIsRefused) {
  ops::register_all();
  const auto attend = [](Shape q, Shape k, bool causal, std::int64_t window = 0) {
    Builder b("refused");
    const Val key = b.input("k", {DType::kF32, k});
    b.call(find_op("flash_attention"), {b.input("q", {DType::kF32, q}), key, key},
           {{"scale", 1.0}, {"causal", causal}, {"window", window}});
  };
  EXPECT_THROW(attend({8, 257}, {8, 257}, true), Error);
  EXPECT_THROW(attend({8, 4}, {7, 4}, true), Error);  // the first query would see no key
  EXPECT_NO_THROW(attend({8, 4}, {7, 4}, false));
  EXPECT_NO_THROW(attend({8, 256}, {8, 256}, true));
  EXPECT_NO_THROW(attend({4, 8, 16}, {2, 8, 16}, true));
  EXPECT_THROW(attend({4, 8, 16}, {3, 8, 16}, true), Error);  // heads that keys cannot share out
  EXPECT_THROW(attend({2, 8, 16}, {4, 8, 16}, true), Error);
  EXPECT_NO_THROW(attend({8, 16}, {8, 16}, true, 3));
  EXPECT_THROW(attend({8, 16}, {8, 16}, false, 3), Error);
  EXPECT_THROW(attend({8, 16}, {8, 16}, true, -1), Error);
}

}  // namespace
}  // namespace tracestep::testing
