// Tests passes `shadow` and `join` on a step, as text and in numbers: same bits, less to do.
#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "analysis/plan.h"
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

using testing::Tensors;

RunSpec step_of(DType low, bool compile, double clip = 0.0) {
  RunSpec run{.precision = {.autocast = low}, .verify = true};
  run.executor = compile ? ExecutorKind::kArena : ExecutorKind::kEager;
  run.optimizer.clip = clip;
  return run;
}

// Without those that add up in another order, or round less often.
const PassContext kSameBits{.disabled = {"merge", "overwrite", "fuse", "epilogue"}};

// loss = Σ y², y = x wᵀ in bf16, and the gradient of a gain that no product reads.
constexpr const char* kForward = R"(program "p" {
  parameter %w : f32[3,2]
  parameter %gain : f32[3]
  input %x : f32[4,2]
  %0 : f32[4,3] = matmul(%x, %w) {transpose_b=true}
  %1 : f32[4,3] = broadcast(%gain) {shape=[4,3]}
  %2 : f32[4,3] = mul(%0, %1)
  %3 : f32[] = sum(%2) {axes=[0,1]}
  output "loss" = %3
})";

std::string compiled_text(const RunSpec& run) {
  ops::register_all();
  const Program program = run_pipeline(parse_program(kForward), run, kSameBits).program;
  verify(program, VerifyStage::kMaterialized);
  return print(program, {.origins = false});
}

TEST(CompileTextTest, AProductReadsTheShadowAndTheUpdateWritesIt) {
  const std::string text = compiled_text(step_of(DType::kBF16, true));
  EXPECT_THAT(text, ::testing::HasSubstr("state %shadow.w : bf16[3,2] !weight_cast"));
  EXPECT_THAT(text, ::testing::HasSubstr("matmul(%0, %shadow.w) {transpose_b=true}"));
  EXPECT_THAT(text, ::testing::ContainsRegex("multi_adamw\\(%lr, %step_size, %w, %[0-9]+, "
                                             "%adamw.m.w, %adamw.v.w, %shadow.w\\)"));
  EXPECT_THAT(text, ::testing::ContainsRegex("update %shadow.w = %[0-9]+"));
  // The gain is read in float32, alone.
  EXPECT_THAT(text, ::testing::HasSubstr(" = adamw(%gain, "));
  EXPECT_THAT(text, ::testing::Not(::testing::HasSubstr("assign")));
  EXPECT_THAT(text, ::testing::Not(::testing::HasSubstr("cast(%w)")));
}

// The store could not make a shadow of a weight that is narrow itself.
TEST(CompileTextTest, OnlyFloat32WeightsGetAShadow) {
  std::string forward = kForward;
  for (auto at = forward.find("f32["); at != std::string::npos; at = forward.find("f32[")) {
    forward.replace(at, 3, "bf16");
  }
  ops::register_all();
  const Program program =
      run_pipeline(parse_program(forward), step_of(DType::kF16, true), kSameBits).program;
  const std::string text = print(program, {.origins = false});
  EXPECT_THAT(text, ::testing::Not(::testing::HasSubstr("shadow.w")));
  EXPECT_THAT(text, ::testing::HasSubstr("cast(%w) {dtype=f16}"));
}

TEST(CompileTextTest, NothingChangesUnlessAskedFor) {
  const std::string text = compiled_text(step_of(DType::kBF16, false));
  EXPECT_THAT(text, ::testing::HasSubstr("cast(%w)"));
  EXPECT_THAT(text, ::testing::Not(::testing::HasSubstr("shadow")));
}

struct Case {
  DType low;
  double clip;
  AttentionForm attention;
};

class CompileTest : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override { ops::register_all(); }

  static Program program_of(const Device& device, bool compile) {
    const ModelConfig model{.vocab = 19, .d_model = 24, .d_ff = 28, .layers = 2, .heads = 3};
    RunSpec run = step_of(GetParam().low, compile, GetParam().clip);
    run.attention = GetParam().attention;
    PassContext context = kSameBits;
    context.has_kernel = [&](const OpDef& op) { return device.has_kernel(op); };
    return run_pipeline(loss_program(model, {.batch = 2, .context = 5}), run, context).program;
  }
};

// The leaves after two steps, the second on what the first left.
Tensors two_steps(Device& device, const Program& program) {
  Tensors leaves = testing::random_leaves(program, 0.0, 0.5);
  std::erase_if(leaves, [](const auto& leaf) { return leaf.first.starts_with("shadow."); });
  for (const auto& [name, value] : testing::run_program(device, program, leaves)) {
    if (leaves.contains(name)) leaves[name] = value;
  }
  return testing::run_program(device, program, leaves);
}

TEST_P(CompileTest, TwoStepsLeaveTheBitsOfThePlainProgram) {
  for (const testing::Backend& backend : testing::backends_under_test()) {
    const auto device = backend.make({.threads = 2, .guarded = true});
    const Program plain = program_of(*device, false), compiled = program_of(*device, true);
    EXPECT_LT(compiled.nodes.size(), plain.nodes.size());
    const Tensors expected = two_steps(*device, plain), actual = two_steps(*device, compiled);
    for (const auto& [name, value] : expected) {
      EXPECT_TRUE(actual.at(name).bytes == value.bytes) << backend.name << " " << name;
    }
    int shadows = 0;
    for (const auto& [name, value] : actual) {
      if (!name.starts_with("shadow.")) continue;
      const HostTensor& wide = actual.at(name.substr(std::string_view("shadow.").size()));
      EXPECT_TRUE(value.bytes == as_dtype(wide, value.dtype).bytes) << backend.name << " " << name;
      ++shadows;
    }
    EXPECT_EQ(shadows, 2 * 7 + 1);
  }
}

INSTANTIATE_TEST_SUITE_P(Steps, CompileTest,
                         ::testing::Values(Case{DType::kBF16, 0.0, AttentionForm::kNaive},
                                           Case{DType::kBF16, 1.0, AttentionForm::kFlash},
                                           Case{DType::kF16, 1.0, AttentionForm::kNaive}),
                         [](const auto& p) {
                           return fmt::format("{}_clip{}_{}", name_of(p.param.low), p.param.clip,
                                              name_of(p.param.attention));
                         });

// Where little is kept, the copies are what is left when backward begins; later gradients lie in
// them.
TEST(CompileBudgetTest, CopiesOfWeightsGoWhereNothingElseCould) {
  ops::register_all();
  const ModelConfig model{.vocab = 64, .d_model = 128, .d_ff = 512, .layers = 3, .heads = 4};
  const auto program_of = [&](const Device& device, bool compile, std::int64_t budget_bytes) {
    RunSpec run = step_of(DType::kBF16, compile);
    if (budget_bytes > 0) {
      run.recompute = {.kind = Recomputation::Kind::kBudget, .budget_bytes = budget_bytes};
    }
    PassContext context = kSameBits;
    context.has_kernel = [&](const OpDef& op) { return device.has_kernel(op); };
    return run_pipeline(loss_program(model, {.batch = 1, .context = 128}), run, context).program;
  };
  for (const testing::Backend& backend : testing::backends_under_test()) {
    const auto device = backend.make({.threads = 2, .guarded = true});
    const Program all = program_of(*device, true, 0);
    const std::int64_t peak_bytes = plan_step(all, {}).peak_bytes();
    const Program some = program_of(*device, true, peak_bytes - 1'800'000);
    EXPECT_LE(plan_step(some, {}).peak_bytes(), peak_bytes - 1'800'000);
    EXPECT_NE(all.find_leaf("shadow.layers.1.ffn.w1.weight"), kNoValue);
    EXPECT_EQ(some.find_leaf("shadow.layers.1.ffn.w1.weight"), kNoValue);
    EXPECT_NE(all.find_leaf("shadow.lm_head.weight"), kNoValue);
    EXPECT_EQ(some.find_leaf("shadow.lm_head.weight"), kNoValue);
    const Tensors expected = two_steps(*device, program_of(*device, false, 0));
    const Tensors actual = two_steps(*device, some);
    for (const auto& [name, value] : expected) {
      EXPECT_TRUE(actual.at(name).bytes == value.bytes) << backend.name << " " << name;
    }
  }
}

// The head's gradient is made at the beginning of backward, and the head is cast again.
TEST(CompileBudgetTest, AStepWithATiedHeadHasTheSameBitsWithinABudget) {
  ops::register_all();
  const ModelConfig model{
      .vocab = 4096, .d_model = 64, .d_ff = 128, .layers = 3, .heads = 4, .is_tied = true};
  for (const testing::Backend& backend : testing::backends_under_test()) {
    const auto device = backend.make({.threads = 2, .guarded = true});
    const auto program_of = [&](std::int64_t budget_bytes) {
      RunSpec run = step_of(DType::kBF16, true);
      if (budget_bytes > 0) {
        run.recompute = {.kind = Recomputation::Kind::kBudget, .budget_bytes = budget_bytes};
      }
      PassContext context{.disabled = {"fuse"}};
      context.has_kernel = [&](const OpDef& op) { return device->has_kernel(op); };
      return run_pipeline(loss_program(model, {.batch = 2, .context = 64}), run, context).program;
    };
    const Program all = program_of(0);
    const std::int64_t budget_bytes = plan_step(all, {}).peak_bytes() - 400'000;
    const Program some = program_of(budget_bytes);
    EXPECT_LE(plan_step(some, {}).peak_bytes(), budget_bytes);
    for (const Program* program : {&all, &some}) {
      EXPECT_TRUE(std::ranges::any_of(program->nodes, [](const Node& node) {
        return node.op->name == "scatter_add_to";
      })) << backend.name;
    }
    const Tensors expected = two_steps(*device, all), actual = two_steps(*device, some);
    for (const auto& [name, value] : expected) {
      if (name.starts_with("shadow.")) continue;
      EXPECT_TRUE(actual.at(name).bytes == value.bytes) << backend.name << " " << name;
    }
  }
}

}  // namespace
}  // namespace tracestep
