// Tests pass `pad` on a head with a vocabulary of odd length, as text and in numbers.
#include "passes/memory_passes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "analysis/plan.h"
#include "ir/parse.h"
#include "ir/print.h"
#include "ir/verify.h"
#include "ops/functions.h"
#include "passes/kernel_passes.h"
#include "spec/fields.h"
#include "spec/parse_words.h"
#include "spec/step_program.h"
#include "support/backends.h"
#include "support/host_values.h"
#include "support/run_program.h"

namespace tracestep {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using testing::Tensors;

std::string padded(const std::string& text) {
  ops::register_all();
  const Program out = pad(parse_program(text));
  verify(out);
  verify(materialize(out), VerifyStage::kMaterialized);
  return print(out, {.origins = false});
}

constexpr const char* kHead = R"(program "p" {
  input %x : bf16[4,2]
  state %shadow.w : bf16[5,2] !weight_cast
  input %t : i64[4]
  input %d : f32[]
  state %m : f32[5,2]
  %0 : bf16[4,5] = matmul(%x, %shadow.w) {transpose_b=true} @ head forward
  %1 : f32[4,5] = cast(%0) {dtype=f32} @ loss forward
  %2, %3 : f32[], f32[4] = cross_entropy(%1, %t) @ loss forward
  %4 : f32[4,5] = cross_entropy_grad(%d, %1, %t, %3) @ loss backward
  %5 : bf16[4,5] = cast(%4) {dtype=bf16} @ loss backward
  %6 : bf16[4,2] = matmul(%5, %shadow.w) @ head backward
  %7 : bf16[5,2] !gradient = matmul(%5, %x) {transpose_a=true} @ head backward
  %8 : f32[] = global_norm(%7)
  output "loss" = %2
  output "dx" = %6
  output "norm" = %8
})";

std::string with(std::string text, const std::string& from, const std::string& to) {
  const auto at = text.find(from);
  TRACESTEP_CHECK(at != std::string::npos, "no {}", from);
  return text.replace(at, from.size(), to);
}

TEST(PadTest, LogitsAndTheirGradientEndInColumnsThatDoNotCount) {
  EXPECT_EQ(padded(kHead), R"(program "p" {
  input %x : bf16[4,2]
  state %shadow.w : bf16[5,2] !weight_cast in "padded.shadow.w" at 0 of 16
  input %t : i64[4]
  input %d : f32[]
  state %m : f32[5,2]
  state %padding.w : bf16[3,2] !weight_cast in "padded.shadow.w" at 10 of 16
  %0 : bf16[8,2] = block(%shadow.w, %padding.w)
  %1 : bf16[4,8] = matmul(%x, %0) {transpose_b=true}
  %2 : f32[4,8] = cast(%1) {dtype=f32}
  %3, %4 : f32[], f32[4] = cross_entropy(%2, %t) {columns=5}
  %5 : f32[4,8] = cross_entropy_grad(%d, %2, %t, %4) {columns=5}
  %6 : bf16[4,8] = cast(%5) {dtype=bf16}
  %7 : bf16[4,2] = matmul(%6, %0)
  %8 : bf16[8,2] !gradient = matmul(%6, %x) {transpose_a=true}
  %9 : bf16[5,2] !gradient = slice(%8) {axis=0, start=0, stop=5}
  %10 : f32[] = global_norm(%9)
  output "loss" = %3
  output "dx" = %7
  output "norm" = %10
}
)");
}

// A product can add what it makes to a state, but not a part of it.
TEST(PadTest, AGradientThatIsAddedToAStateIsAProductOfTheColumnsThatCount) {
  const std::string text =
      padded(with(kHead, "%8 : f32[] = global_norm(%7)",
                  "%9 : f32[5,2] = cast(%7) {dtype=f32}\n  %10 : f32[5,2] = add(%9, %m)\n"
                  "  update %m = %10\n  %8 : f32[] = global_norm(%10)"));
  EXPECT_THAT(text, HasSubstr("%8 : bf16[4,5] = slice(%6) {axis=1, start=0, stop=5}\n"
                              "  %9 : bf16[5,2] !gradient = matmul(%8, %x) {transpose_a=true}\n"));
}

// As that of an embedding which is the head as well: the sum is an op of its own.
TEST(PadTest, AGradientThatIsAddedToAnotherOneIsAPartOfAlignedRows) {
  const std::string text =
      padded(with(kHead, "%8 : f32[] = global_norm(%7)",
                  "%9 : f32[5,2] = cast(%7) {dtype=f32}\n  %10 : f32[5,2] = exp(%m)\n"
                  "  %11 : f32[5,2] = add(%9, %10)\n  %8 : f32[] = global_norm(%11)"));
  EXPECT_THAT(text, HasSubstr("%8 : bf16[8,2] !gradient = matmul(%6, %x) {transpose_a=true}\n"
                              "  %9 : bf16[5,2] !gradient = slice(%8) {axis=0, start=0, stop=5}"));
}

TEST(PadTest, OtherReadersOfLogitsReadTheColumnsThatCount) {
  const std::string text =
      padded(with(kHead, "output \"loss\" = %2", "output \"loss\" = %2\n  output \"logits\" = %0"));
  EXPECT_THAT(text, HasSubstr("%11 : bf16[4,5] = slice(%1) {axis=1, start=0, stop=5}"));
  EXPECT_THAT(text, HasSubstr("output \"logits\" = %11"));
}

// In float64, where roundings do not hide a term too many.
TEST(PadTest, TheSumsAreTheSame) {
  const std::string added =
      with(kHead, "%8 : f32[] = global_norm(%7)",
           "%9 : f32[5,2] = cast(%7) {dtype=f32}\n  %10 : f32[5,2] = add(%9, %m)\n"
           "  update %m = %10\n  %8 : f32[] = global_norm(%10)");
  ops::register_all();
  for (const std::string& text : {std::string(kHead), added}) {
    const Program plain = parse_program(text), program = pad(plain);
    ASSERT_FALSE(program == plain);
    Tensors leaves = testing::random_leaves(plain);
    leaves.at("t") = testing::random_tensor({DType::kI64, {4}}, "t", 0.0, 4.0);
    const Tensors expected = testing::reference_values(plain, leaves);
    for (const auto& [name, value] : testing::reference_values(program, leaves)) {
      EXPECT_LE(testing::max_difference(testing::to_doubles(value),
                                        testing::to_doubles(expected.at(name))),
                1e-14)
          << name;
    }
  }
}

TEST(PadTest, NothingChangesWithoutALossOrAShadowOrWhereRowsAreAligned) {
  const std::string no_loss = R"(program "p" {
  input %x : bf16[4,2]
  state %shadow.w : bf16[5,2] !weight_cast
  %0 : bf16[4,5] = matmul(%x, %shadow.w) {transpose_b=true}
  output "y" = %0
})";
  std::string aligned = kHead;
  for (auto at = aligned.find("5,2]"); at != std::string::npos; at = aligned.find("5,2]")) {
    aligned[at] = '8';
  }
  for (auto at = aligned.find("[4,5]"); at != std::string::npos; at = aligned.find("[4,5]")) {
    aligned[at + 3] = '8';
  }
  const std::string in_block =
      with(kHead, "bf16[5,2] !weight_cast", "bf16[5,2] !weight_cast in \"b\" at 0 of 10");
  ops::register_all();
  for (const std::string& text :
       {no_loss, aligned, in_block, with(kHead, "5,2] !weight_cast", "5,2]")}) {
    const Program program = parse_program(text);
    EXPECT_EQ(pad(program), program) << text;
  }
}

TEST(PadTest, LongRowsBeginAtCacheLinesAndShortOnesAt16Bytes) {
  EXPECT_EQ(padded_columns(50257, 2), 50304);
  EXPECT_EQ(padded_columns(32003, 2), 32064);
  EXPECT_EQ(padded_columns(1023, 2), 1024);
  EXPECT_EQ(padded_columns(257, 2), 264);
  EXPECT_EQ(padded_columns(65, 2), 72);
  for (std::int64_t aligned : {8, 10000, 32000, 50264}) {
    EXPECT_EQ(padded_columns(aligned, 2), aligned);
  }
}

// --- whole steps --------------------------------------------------------------------------------
struct Case {
  const char* name;
  const char* precision = "bf16";
  GradientKind gradients = GradientKind::kTransient;
  std::int64_t chunks = 1;
  const char* recompute = "none";
  bool tied = false;
  double clip = 0.0;
};

class PaddedStepTest : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override { ops::register_all(); }

  static RunSpec spec(bool pads) {
    RunSpec out;
    out.model = {.vocab = 503, .d_model = 24, .d_ff = 28, .layers = 2, .heads = 3};
    out.model.is_tied = GetParam().tied;
    out.shape = {.batch = 2, .context = 40};
    out.precision = parse_precision("test", GetParam().precision);
    out.gradients = GetParam().gradients;
    if (out.gradients != GradientKind::kTransient) out.mode = Mode::kForwardBackward;
    out.recompute = parse_recomputation("test", GetParam().recompute);
    out.loss_chunks = GetParam().chunks;
    out.optimizer.clip = GetParam().clip;
    out.executor = ExecutorKind::kCompiled;
    out.compile_passes = {"shadow", "merge", "join", "overwrite", "epilogue"};
    if (pads) out.compile_passes->insert("pad");
    return out;
  }

  static Tensors leaves_of(const Program& program) {
    Tensors out = testing::random_leaves(program, 0.0, 0.5);
    std::erase_if(out, [](const auto& leaf) { return leaf.first.starts_with("shadow."); });
    return out;
  }
};

// run_program() also checks that the peak is the predicted one, to the byte.
TEST_P(PaddedStepTest, ItLeavesTheValuesOfTheStepThatIsNotPadded) {
  for (const testing::Backend& backend : testing::backends_under_test()) {
    const auto device = backend.make({.threads = 2, .guarded = true});
    const Program plain = step_program(spec(false), *device),
                  program = step_program(spec(true), *device);
    EXPECT_THAT(print(program), HasSubstr("columns=503"));
    EXPECT_EQ(parameter_count(program), parameter_count(plain));
    const Tensors leaves = leaves_of(plain);
    RunSpec eager = spec(false);  // the reference has no narrow copies
    eager.executor = ExecutorKind::kEager;
    eager.compile_passes.reset();
    const Tensors exact = testing::reference_values(step_program(eager, *device), leaves);
    const Tensors expected = testing::run_program(*device, plain, leaves);
    for (const auto& [name, value] : testing::run_program(*device, program, leaves)) {
      if (name.starts_with("shadow.")) continue;  // rounded from the weights
      SCOPED_TRACE(backend.name + " " + name);
      const std::vector<double> wanted = testing::to_doubles(exact.at(name));
      const double floor = testing::max_abs(wanted) * 0x1p-7;
      EXPECT_LE(
          testing::max_difference(testing::to_doubles(value), wanted),
          2.0 * testing::max_difference(testing::to_doubles(expected.at(name)), wanted) + floor);
    }
  }
}

// A row of padding for each token, and one in the narrow copy of the head.
TEST_P(PaddedStepTest, ThePeakGrowsByThePaddingAlone) {
  const DeviceTraits gpu{.kind = DeviceKind::kCuda};
  const std::int64_t plain = plan_step(step_program(spec(false), gpu), gpu).peak_bytes(),
                     peak = plan_step(step_program(spec(true), gpu), gpu).peak_bytes();
  constexpr std::int64_t kTokens = 2 * 40, kWidth = 24, kRounded = 3 * 256, kVocab = 503;
  // The gradient of the head, 16 bits wide, is then not where its narrow copy is.
  constexpr std::int64_t kGradient = 2 * kVocab * kWidth;
  EXPECT_GE(peak, plain);
  EXPECT_LE(peak, plain + 2 * (kTokens + 2 * kWidth) + kRounded + kGradient);
}

TEST_P(PaddedStepTest, OnlyAGpuPadsByDefault) {
  RunSpec run = spec(false);
  run.compile_passes.reset();
  for (DeviceKind kind : {DeviceKind::kCpu, DeviceKind::kCuda}) {
    const std::string text = print(step_program(run, DeviceTraits{.kind = kind}));
    EXPECT_EQ(text.find("padding.") != std::string::npos, kind == DeviceKind::kCuda);
  }
  run.executor = ExecutorKind::kEager;
  EXPECT_THAT(print(step_program(run, DeviceTraits{.kind = DeviceKind::kCuda})),
              Not(HasSubstr("padding.")));
}

INSTANTIATE_TEST_SUITE_P(
    Steps, PaddedStepTest,
    ::testing::Values(
        Case{"bf16"}, Case{"fp16", "fp16"}, Case{.name = "clipped", .clip = 1.0},
        Case{.name = "tied", .tied = true}, Case{.name = "chunks", .chunks = 3},
        Case{.name = "first", .gradients = GradientKind::kPersistent},
        Case{.name = "added", .gradients = GradientKind::kAccumulate},
        Case{.name = "added_in_chunks", .gradients = GradientKind::kAccumulate, .chunks = 3},
        Case{.name = "blocks", .recompute = "blocks"},
        Case{.name = "tied_in_chunks", .chunks = 3, .tied = true, .clip = 1.0}),
    [](const auto& each) { return std::string(each.param.name); });

}  // namespace
}  // namespace tracestep
