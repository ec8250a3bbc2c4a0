// Tests pass `epilogue` on sums of products and other tensors, as text and in numbers.
#include "passes/kernel_passes.h"

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "analysis/buffer_plan.h"
#include "ir/parse.h"
#include "ir/print.h"
#include "ir/verify.h"
#include "nn/transformer.h"
#include "ops/functions.h"
#include "passes/pipeline.h"
#include "support/backends.h"
#include "support/host_values.h"
#include "support/run_program.h"

namespace tracestep {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using testing::Tensors;

class EpilogueTest : public ::testing::Test {
 protected:
  void SetUp() override { ops::register_all(); }

  static Program adding(const std::string& text) {
    Program out = epilogue(parse_program(text), [](const OpDef&) { return true; });
    verify(out);
    return out;
  }
  static std::string text_of(const std::string& text) {
    return print(adding(text), {.origins = false});
  }
};

TEST_F(EpilogueTest, AResidualIsAddedByTheProductThroughCastAndReshape) {
  EXPECT_THAT(text_of(R"(program "p" {
    input %x : f32[2,3,5]
    input %a : bf16[6,4]
    parameter %w : bf16[5,4]
    %0 : bf16[6,5] = matmul(%a, %w) {transpose_b=true}
    %1 : bf16[2,3,5] = reshape(%0) {shape=[2,3,5]}
    %2 : f32[2,3,5] = cast(%1) {dtype=f32}
    %3 : f32[2,3,5] = add(%x, %2)
    output "y" = %3
  })"),
              HasSubstr("  %0 : f32[6,5] = reshape(%x) {shape=[6,5]}\n"
                        "  %1 : f32[6,5] = matmul_add(%a, %w, %0) {transpose_b=true}\n"
                        "  %2 : f32[2,3,5] = reshape(%1) {shape=[2,3,5]}\n"
                        "  output \"y\" = %2\n"));
}

// Otherwise half of the product's time and bytes would be the residual's.
TEST_F(EpilogueTest, TheProductIsOfItsOwnPartOfTheModelAlone) {
  EXPECT_THAT(print(adding(R"(program "p" {
    input %x : f32[6,5]
    input %a : f32[6,4]
    parameter %w : f32[4,5]
    %0 : f32[6,5] = matmul(%a, %w) @ ffn.w2 forward
    %1 : f32[6,5] = add(%x, %0) @ ffn.residual forward
    output "y" = %1
  })")),
              HasSubstr("matmul_add(%a, %w, %x) @ ffn.w2 forward by epilogue\n"));
}

// The gradient of a micro-batch goes into the state that it is added to, without a copy.
TEST_F(EpilogueTest, AnAccumulatedGradientIsWrittenInPlace) {
  const Program out = adding(R"(program "p" {
    input %dy : bf16[6,5]
    input %x : bf16[6,4]
    state %grad.w : f32[5,4] !gradient
    %0 : bf16[5,4] = matmul(%dy, %x) {transpose_a=true}
    %1 : f32[5,4] = cast(%0) {dtype=f32}
    %2 : f32[5,4] = add(%grad.w, %1)
    update %grad.w = %2
  })");
  EXPECT_THAT(print(out), HasSubstr("matmul_add(%dy, %x, %grad.w) {transpose_a=true}"));
  EXPECT_EQ(out.nodes.size(), 1u);
  EXPECT_TRUE(updates_out_of_place(out, plan_buffers(out)).empty());
}

// Gradients of weights that one product reads lie side by side, and so do the parts of what they
// are products of.
constexpr const char* kTwoGradients = R"(program "p" {
  input %dy : bf16[6,8]
  input %x : bf16[6,4]
  state %grad.v : f32[5,4] !gradient in "grad.vw" at 0 of 32
  state %grad.w : f32[3,4] !gradient in "grad.vw" at 20 of 32
  %0 : bf16[6,3] = slice(%dy) {axis=1, start=5, stop=8}
  %1 : bf16[3,4] = matmul(%0, %x) {transpose_a=true}
  %2 : f32[3,4] = cast(%1) {dtype=f32}
  %3 : f32[3,4] = add(%grad.w, %2)
  %4 : bf16[6,5] = slice(%dy) {axis=1, start=0, stop=5}
  %5 : bf16[5,4] = matmul(%4, %x) {transpose_a=true}
  %6 : f32[5,4] = cast(%5) {dtype=f32}
  %7 : f32[5,4] = add(%grad.v, %6)
  update %grad.v = %7
  update %grad.w = %3
})";

TEST_F(EpilogueTest, OneProductAddsToGradientsThatLieSideBySide) {
  const Program out = adding(kTwoGradients);
  EXPECT_THAT(print(out), HasSubstr("%0, %1 : f32[5,4], f32[3,4] = matmul_add_rows(%dy, %x, "
                                    "%grad.v, %grad.w) {transpose_a=true}"));
  EXPECT_EQ(out.nodes.size(), 1u);
  EXPECT_TRUE(updates_out_of_place(out, plan_buffers(out)).empty());
}

// Products of their own round before they are added.
TEST_F(EpilogueTest, SumsOfOneProductAreThoseOfEach) {
  const std::string text = R"(program "p" {
    input %dy : bf16[96,400]
    input %x : bf16[96,64]
    state %grad.v : f32[272,64] !gradient in "grad.vw" at 0 of 25600
    state %grad.w : f32[128,64] !gradient in "grad.vw" at 17408 of 25600
    %0 : bf16[96,272] = slice(%dy) {axis=1, start=0, stop=272}
    %1 : bf16[272,64] = matmul(%0, %x) {transpose_a=true}
    %2 : f32[272,64] = cast(%1) {dtype=f32}
    %3 : f32[272,64] = add(%grad.v, %2)
    %4 : bf16[96,128] = slice(%dy) {axis=1, start=272, stop=400}
    %5 : bf16[128,64] = matmul(%4, %x) {transpose_a=true}
    %6 : f32[128,64] = cast(%5) {dtype=f32}
    %7 : f32[128,64] = add(%grad.w, %6)
    update %grad.v = %3
    update %grad.w = %7
  })";
  const Program plain = parse_program(text), joined = adding(text);
  ASSERT_THAT(print(joined), HasSubstr("matmul_add_rows"));
  const Tensors leaves = testing::random_leaves(plain);
  for (const testing::Backend& backend : testing::backends_under_test()) {
    SCOPED_TRACE(backend.name);
    const auto device = backend.make({.threads = 2});
    const Tensors each = testing::run_program(*device, plain, leaves);
    for (const auto& [name, value] : testing::run_program(*device, joined, leaves)) {
      const std::vector<double> a = testing::to_doubles(value),
                                b = testing::to_doubles(each.at(name));
      ASSERT_EQ(a.size(), b.size());
      for (std::size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], 0.5) << name << " " << i;
    }
  }
}

// Parts in another order than the leaves, with a gap, of other tensors or in other blocks, and sums
// that are read before the last of them is made.
TEST_F(EpilogueTest, OtherSumsStayApart) {
  const auto changed = [](const std::string& from, const std::string& to) {
    std::string text = kTwoGradients;
    const auto at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return text.replace(at, from.size(), to);
  };
  for (const std::string& text :
       {changed("start=5, stop=8", "start=4, stop=7"),
        changed("start=0, stop=5", "start=1, stop=6"),
        changed("in \"grad.vw\" at 20 of 32", "in \"grad.uw\" at 20 of 32"),
        changed("%4 : bf16[6,5] = slice(%dy)",
                "%8 : bf16[6,8] = exp(%dy)\n  %4 : bf16[6,5] = slice(%8)"),
        changed("update %grad.v",
                "%8 : f32[3,4] = exp(%3)\n  output \"y\" = %8\n  update %grad.v")}) {
    const auto has = [](const std::string& in, const char* what) {
      return in.find(what) != std::string::npos;
    };
    const bool is_read_late = has(text, "output");
    EXPECT_EQ(has(text_of(text), "matmul_add_rows"), is_read_late) << text;
  }
}

// The same of codes, whose product alone takes bfloat16.
TEST_F(EpilogueTest, AProductOfCodesAddsToGradientsThatLieSideBySide) {
  const std::string text = R"(program "p" {
    input %dy : f8e5m2[48,32]
    input %x : f8e4m3[16,32]
    input %of_dy : f32[]
    input %of_x : f32[]
    state %grad.v : f32[16,16] !gradient in "grad.vw" at 0 of 768
    state %grad.w : f32[32,16] !gradient in "grad.vw" at 256 of 768
    %0 : f8e5m2[16,32] = slice(%dy) {axis=0, start=0, stop=16}
    %1 : bf16[16,16] = scaled_matmul(%0, %x, %of_dy, %of_x) {dtype=bf16}
    %2 : f32[16,16] = cast(%1) {dtype=f32}
    %3 : f32[16,16] = add(%grad.v, %2)
    %4 : f8e5m2[32,32] = slice(%dy) {axis=0, start=16, stop=48}
    %5 : bf16[32,16] = scaled_matmul(%4, %x, %of_dy, %of_x) {dtype=bf16}
    %6 : f32[32,16] = cast(%5) {dtype=f32}
    %7 : f32[32,16] = add(%grad.w, %6)
    update %grad.v = %3
    update %grad.w = %7
  })";
  const Program out = adding(text);
  EXPECT_THAT(print(out),
              HasSubstr("= scaled_matmul_add(%dy, %x, %of_dy, %of_x, %grad.v, %grad.w)"));
  EXPECT_EQ(out.nodes.size(), 1u);
  EXPECT_TRUE(updates_out_of_place(out, plan_buffers(out)).empty());
}

TEST_F(EpilogueTest, OfTwoProductsTheLaterOneAdds) {
  EXPECT_THAT(text_of(R"(program "p" {
    input %a : f32[3,4]
    input %b : f32[4,5]
    %0 : f32[3,5] = matmul(%a, %b)
    %1 : f32[3,4] = exp(%a)
    %2 : f32[3,5] = matmul(%1, %b)
    %3 : f32[3,5] = add(%2, %0)
    output "y" = %3
  })"),
              HasSubstr("= matmul_add(%1, %b, %0)"));
}

TEST_F(EpilogueTest, NothingChangesWhereAProductIsReadElsewhereOrItsSumIsNotItsOwn) {
  const char* const head = R"(program "p" {
    input %x : f32[5,3]
    input %a : f32[3,4]
    input %b : f32[4,5]
    %0 : f32[3,5] = matmul(%a, %b)
    )";
  for (const char* rest : {
           // Another reader.
           R"(%1 : f32[3,5] = exp(%0)
              %2 : f32[3,5] = add(%1, %0)
              output "y" = %2 })",
           // Another order of elements.
           R"(%1 : f32[5,3] = permute(%0) {axes=[1,0]}
              %2 : f32[5,3] = add(%x, %1)
              output "y" = %2 })",
           // A term that is not dense, which the product cannot read.
           R"(%1 : f32[3,5] = permute(%x) {axes=[1,0]}
              %2 : f32[3,5] = add(%1, %0)
              output "y" = %2 })",
           // Rounded to fewer bits before it is added.
           R"(%1 : bf16[3,5] = cast(%0) {dtype=bf16}
              %2 : bf16[3,5] = add(%1, %1)
              output "y" = %2 })",
       }) {
    const Program plain = parse_program(std::string(head) + rest);
    EXPECT_EQ(epilogue(plain, [](const OpDef&) { return true; }), plain) << rest;
  }
}

// The gradient of a head that is tied to the embedding, in bfloat16.
constexpr const char* kTied = R"(program "p" {
    input %dlogits : bf16[6,5]
    input %h : bf16[6,4]
    input %dx : f32[6,4]
    input %ids : i64[6]
    %0 : bf16[5,4] = matmul(%dlogits, %h) {transpose_a=true}
    %1 : f32[6,4] = exp(%dx)
    %2 : f32[5,4] = scatter_add(%1, %ids) {rows=5}
    %3 : f32[5,4] = cast(%0) {dtype=f32}
    %4 : f32[5,4] = add(%2, %3)
    output "y" = %4
  })";

TEST_F(EpilogueTest, RowsOfAnEmbeddingAreAddedToTheGradientOfTheHeadThatIsTiedToIt) {
  EXPECT_THAT(text_of(kTied),
              HasSubstr("  %0 : f32[6,4] = exp(%dx)\n"
                        "  %1 : bf16[5,4] = matmul(%dlogits, %h) {transpose_a=true}\n"
                        "  %2 : f32[5,4] = scatter_add_to(%0, %ids, %1)\n"
                        "  output \"y\" = %2\n"));
}

TEST_F(EpilogueTest, TheGradientOfTheHeadIsMadeFirstWhereThatIsAskedFor) {
  const Program out = epilogue(
      parse_program(kTied), [](const OpDef&) { return true; }, HeadGradient::kFirst);
  verify(out);
  EXPECT_THAT(print(out, {.origins = false}),
              HasSubstr("  %0 : bf16[5,4] = matmul(%dlogits, %h) {transpose_a=true}\n"
                        "  %1 : f32[6,4] = exp(%dx)\n"
                        "  %2 : f32[5,4] = scatter_add_to(%1, %ids, %0)\n"));
}

// Then the gradient of the logits is dead early at no bytes.
TEST_F(EpilogueTest, TheGradientOfTheHeadIsMadeFirstWhereItsNarrowCopyHasRoomForIt) {
  EXPECT_THAT(text_of(R"(program "p" {
    input %dlogits : bf16[6,5]
    input %h : bf16[6,4]
    input %ids : i64[6]
    input %lr : f32[]
    input %step_size : f32[]
    parameter %w : f32[5,4]
    state %m : f32[5,4] !optimizer_state
    state %v : f32[5,4] !optimizer_state
    state %shadow.w : bf16[5,4] !weight_cast
    %0 : bf16[5,4] = matmul(%dlogits, %h) {transpose_a=true}
    %1 : f32[6,4] = cast(%h) {dtype=f32}
    %2 : f32[5,4] = scatter_add(%1, %ids) {rows=5}
    %3 : f32[5,4] = cast(%0) {dtype=f32}
    %4 : f32[5,4] = add(%2, %3)
    %5, %6, %7, %8 : f32[5,4], f32[5,4], f32[5,4], bf16[5,4] = multi_adamw(%lr, %step_size, %w, %4, %m, %v, %shadow.w) {shadowed=true}
    update %w = %5
    update %m = %6
    update %v = %7
    update %shadow.w = %8
  })"),
              HasSubstr("  %0 : bf16[5,4] = matmul(%dlogits, %h) {transpose_a=true}\n"
                        "  %1 : f32[6,4] = cast(%h) {dtype=f32}\n"
                        "  %2 : f32[5,4] = scatter_add_to(%1, %ids, %0)\n"));
}

TEST_F(EpilogueTest, RowsAddedToAMatrixHaveTheBitsOfTheirSum) {
  const Program plain = parse_program(kTied);
  for (const testing::Backend& backend : testing::backends_under_test()) {
    const auto device = backend.make({.threads = 2, .guarded = true});
    const Tensors leaves = testing::random_leaves(plain, 0.0, 4.9);
    const Tensors sums = testing::run_program(*device, plain, leaves);
    for (const HeadGradient head : {HeadGradient::kLast, HeadGradient::kFirst}) {
      const Program program = epilogue(
          plain, [&](const OpDef& op) { return device->has_kernel(op); }, head);
      EXPECT_TRUE(testing::run_program(*device, program, leaves).at("y").bytes ==
                  sums.at("y").bytes)
          << backend.name;
    }
  }
}

TEST_F(EpilogueTest, RowsThatSomethingElseReadsStayAnOpOfTheirOwn) {
  EXPECT_THAT(text_of(R"(program "p" {
    input %a : f32[5,4]
    input %x : f32[6,4]
    input %ids : i64[6]
    %0 : f32[5,4] = scatter_add(%x, %ids) {rows=5}
    %1 : f32[5,4] = add(%0, %a)
    output "rows" = %0
    output "y" = %1
  })"),
              Not(HasSubstr("scatter_add_to")));
}

// Behind the update the product would read the leaf's new value.
TEST_F(EpilogueTest, AProductStaysBeforeTheUpdateOfWhatItReads) {
  EXPECT_THAT(text_of(R"(program "p" {
    input %x : f32[4,4]
    state %s : f32[4,4]
    %0 : f32[4,4] = matmul(%x, %s)
    %1 : f32[4,4] = add(%s, %x)
    %2 : f32[4,4] = add(%x, %0)
    update %s = %1
    output "y" = %2
  })"),
              Not(HasSubstr("matmul_add")));
}

// --- whole steps --------------------------------------------------------------------------------
std::int64_t launch_count(const Program& p) {
  return std::ranges::count_if(p.nodes, [&](const Node& node) { return launches(p, node); });
}

struct Case {
  std::optional<DType> low = {};
  Mode mode = Mode::kStep;
  GradientKind gradients = GradientKind::kTransient;
};

class EpilogueStepTest : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override { ops::register_all(); }

  static Program step(const Device& device, std::set<std::string> disabled) {
    const ModelConfig model{.vocab = 19, .d_model = 24, .d_ff = 28, .layers = 1, .heads = 3};
    RunSpec run{.verify = true};
    PassContext context;
    run.mode = GetParam().mode;
    run.executor = ExecutorKind::kArena;
    run.precision.autocast = GetParam().low;
    run.gradients = GetParam().gradients;
    context.has_kernel = [&](const OpDef& op) { return device.has_kernel(op); };
    disabled.insert("fuse");
    context.disabled = std::move(disabled);
    return run_pipeline(loss_program(model, {.batch = 2, .context = 5}), run, context).program;
  }
};

// In float32 the bits of product and sum; from narrow operands nearer to float64, or as near.
TEST_P(EpilogueStepTest, ItIsAsExactAsTheStepWithSums) {
  for (const testing::Backend& backend : testing::backends_under_test()) {
    const auto device = backend.make({.threads = 2, .guarded = true});
    const Program plain = step(*device, {"epilogue"}), program = step(*device, {});
    EXPECT_LT(launch_count(program), launch_count(plain));
    Tensors leaves = testing::random_leaves(plain, 0.0, 0.5);
    std::erase_if(leaves, [](const auto& leaf) { return leaf.first.starts_with("shadow."); });
    const Tensors exact = testing::reference_values(step(*device, {"shadow", "epilogue"}), leaves);
    const Tensors sums = testing::run_program(*device, plain, leaves);
    for (const auto& [name, value] : testing::run_program(*device, program, leaves)) {
      if (name.starts_with("shadow.")) continue;  // rounded from the weight
      SCOPED_TRACE(backend.name + " " + name);
      const bool has_same_sums = device->traits().kind == DeviceKind::kCpu && !GetParam().low;
      if (has_same_sums) {
        EXPECT_TRUE(value.bytes == sums.at(name).bytes);
      }
      const std::vector<double> expected = testing::to_doubles(exact.at(name));
      const double floor = testing::max_abs(expected) * (GetParam().low ? 0x1p-9 : 16 * 0x1p-24);
      EXPECT_LE(
          testing::max_difference(testing::to_doubles(value), expected),
          1.5 * testing::max_difference(testing::to_doubles(sums.at(name)), expected) + floor);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Steps, EpilogueStepTest,
                         ::testing::Values(Case{}, Case{.low = DType::kBF16},
                                           Case{.low = DType::kBF16, .mode = Mode::kInference},
                                           Case{.low = DType::kBF16,
                                                .mode = Mode::kForwardBackward,
                                                .gradients = GradientKind::kAccumulate},
                                           Case{.mode = Mode::kForwardBackward,
                                                .gradients = GradientKind::kAccumulate}));

}  // namespace
}  // namespace tracestep
