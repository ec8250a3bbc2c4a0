// Tests pass `adapt` as text: where adapters stand, what becomes a constant, and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "ir/parse.h"
#include "ir/print.h"
#include "ir/verify.h"
#include "nn/transformer.h"
#include "ops/functions.h"
#include "passes/form_passes.h"
#include "spec/step_program.h"

namespace tracestep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class AdaptTest : public ::testing::Test {
 protected:
  void SetUp() override { ops::register_all(); }

  static std::string printed(const Program& program) {
    verify(program);
    return print(program, {.origins = false});
  }
  static std::string adapted(const std::string& text, const Adapters& lora,
                             const FrozenParts& frozen = {}) {
    return printed(adapt(parse_program(text), lora, frozen));
  }
  static RunSpec small(Adapters lora, FrozenParts frozen = {}) {
    return {.model = {.vocab = 26, .d_model = 16, .d_ff = 24, .layers = 2, .heads = 2},
            .shape = {.batch = 2, .context = 6},
            .lora = std::move(lora),
            .frozen = std::move(frozen)};
  }
  static std::vector<std::string> names_of(const Program& program, LeafKind kind) {
    std::vector<std::string> out;
    for (const ValueId id : program.leaves) {
      if (program.value(id).leaf == kind) out.push_back(program.value(id).name);
    }
    return out;
  }
  static std::string message_of(const RunSpec& run) {
    try {
      step_program(run);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kUsage);
      return error.what();
    }
    return "";
  }
};

constexpr const char* kProducts = R"(program "p" {
  input %x : f32[6,8]
  parameter %a.q_proj.weight : f32[4,8]
  parameter %a.v_proj.weight : f32[4,8]
  parameter %a.v_proj.bias : f32[4]
  %0 : f32[6,4] = matmul(%x, %a.q_proj.weight) {transpose_b=true} @ a.q_proj forward
  %1 : f32[6,4] = matmul_bias(%x, %a.v_proj.weight, %a.v_proj.bias) {transpose_b=true} @ a.v_proj forward
  output "q" = %0
  output "v" = %1
})";

TEST_F(AdaptTest, AnAdapterIsAddedToATargetAndEverythingElseIsAConstant) {
  EXPECT_EQ(adapted(kProducts, {.rank = 2, .alpha = 8, .targets = {"v"}}), R"(program "p" {
  input %x : f32[6,8]
  constant %a.q_proj.weight : f32[4,8]
  constant %a.v_proj.weight : f32[4,8]
  constant %a.v_proj.bias : f32[4]
  parameter %a.v_proj.lora_A.weight : f32[2,8]
  parameter %a.v_proj.lora_B.weight : f32[4,2]
  %0 : f32[6,4] = matmul(%x, %a.q_proj.weight) {transpose_b=true}
  %1 : f32[6,4] = matmul_bias(%x, %a.v_proj.weight, %a.v_proj.bias) {transpose_b=true}
  %2 : f32[6,2] = matmul(%x, %a.v_proj.lora_A.weight) {transpose_b=true}
  %3 : f32[6,2] = affine(%2) {scale=4.0}
  %4 : f32[6,4] = matmul(%3, %a.v_proj.lora_B.weight) {transpose_b=true}
  %5 : f32[6,4] = add(%1, %4)
  output "q" = %0
  output "v" = %5
}
)");
}

TEST_F(AdaptTest, DropoutReadsTheNumberOfTheBatchAndARankStabilisedScaleTheRoot) {
  const std::string text = adapted(
      kProducts,
      {.rank = 4, .alpha = 6, .dropout = 0.5, .is_rank_stabilised = true, .targets = {"a.q_proj"}});
  EXPECT_THAT(text, HasSubstr("input %dropout.batch : i64[1]"));
  EXPECT_THAT(text, HasSubstr("dropout(%x, %dropout.batch) {rate=0.5"));
  EXPECT_THAT(text, HasSubstr("{scale=3.0}"));
}

TEST_F(AdaptTest, FrozenPartsAreConstantsAndABlockOfWhichSomeAreTrainedIsGivenUp) {
  const RunSpec run = small({}, {{"layers.1.attn.q_proj", "token_embeddings"}});
  const Program program = adapt(loss_program(run), run.lora, run.frozen);
  EXPECT_THAT(names_of(program, LeafKind::kConstant),
              ElementsAre("token_embeddings.weight", "layers.1.attn.q_proj.weight"));
  const auto block = [&](const char* name) {
    return program.value(program.find_leaf(name)).part.block;
  };
  EXPECT_EQ(block("layers.1.attn.k_proj.weight"), "");
  EXPECT_EQ(block("layers.0.attn.k_proj.weight"), "layers.0.attn.qkv_proj.weight");
}

TEST_F(AdaptTest, InACompiledStepTheAdaptersOfOneInputAreOneProduct) {
  RunSpec run = small({.rank = 2, .targets = {"all"}});
  run.executor = ExecutorKind::kCompiled;
  const Program program = adapt(loss_program(run), run.lora, {});
  const Value& k = program.value(program.find_leaf("layers.1.attn.k_proj.lora_A.weight"));
  EXPECT_EQ(k.part, (BlockPart{"layers.1.attn.qkv_proj.lora_A.weight", 2 * 16, 3 * 2 * 16}));
  const auto block =
      HasSubstr("block(%layers.1.attn.q_proj.lora_A.weight, %layers.1.attn.k_proj.lora_A.weight");
  EXPECT_THAT(print(step_program(run)), block);
  run.lora.targets = {"q", "k", "o", "gate", "up", "down"};
  EXPECT_THAT(print(step_program(run)), ::testing::Not(block)) << "v has none";
}

TEST_F(AdaptTest, PathsHaveStarsRangesAndPartsOfAModel) {
  EXPECT_TRUE(path_matches("layers.0-15", "layers.7.attn.q_proj.weight"));
  EXPECT_TRUE(path_matches("layers.0-15.*", "layers.15.ln1.weight"));
  EXPECT_FALSE(path_matches("layers.0-15", "layers.16.ln1.weight"));
  EXPECT_TRUE(path_matches("*.q_proj", "layers.3.attn.q_proj.weight"));
  EXPECT_FALSE(path_matches("*.q_pro", "layers.3.attn.q_proj.weight"));
  EXPECT_TRUE(path_matches("model.h.2-3.mlp", "model.h.3.mlp.c_fc"));
  EXPECT_FALSE(path_matches("layers", "layers_2.weight"));
  EXPECT_TRUE(path_matches("layers.*.ffn.w1", "layers.0.ffn.w1"));
  EXPECT_FALSE(path_matches("", "a"));
}

TEST_F(AdaptTest, NoGradientOfAFrozenWeightIsComputedAndNoneBelowTheFirstThatIsTrained) {
  RunSpec run = small({.rank = 2, .targets = {"q"}});
  const Program program = step_program(run);
  std::set<std::string> updated;
  for (const Update& u : program.updates) {
    const Value& leaf = program.value(u.leaf);
    if (leaf.leaf == LeafKind::kParameter) updated.insert(leaf.name);
  }
  EXPECT_EQ(updated.size(), 4u);  // A and B of two layers
  EXPECT_EQ(names_of(program, LeafKind::kState).size(), 8u);
  // The last layer alone is trained: nothing of the one below runs in backward.
  const RunSpec last = small({.rank = 2, .targets = {"layers.1.attn.q_proj"}});
  for (const Node& node : step_program(last).nodes) {
    if (node.origin().phase != Phase::kBackward) continue;
    EXPECT_THAT(node.origin().path, ::testing::Not(::testing::StartsWith("layers.0")));
  }
}

TEST_F(AdaptTest, UnderAutocastFrozenWeightsOfProductsAndTablesAreNarrow) {
  RunSpec run = small({.rank = 2, .targets = {"all"}});
  run.precision.autocast = DType::kBF16;
  const Program program = step_program(run);
  for (const ValueId id : program.leaves) {
    const Value& leaf = program.value(id);
    if (leaf.leaf == LeafKind::kConstant) {
      const bool is_norm = leaf.type.shape.rank() == 1;
      EXPECT_EQ(leaf.type.dtype, is_norm ? DType::kF32 : DType::kBF16) << leaf.name;
    }
    if (leaf.leaf == LeafKind::kParameter) {
      EXPECT_EQ(leaf.type.dtype, DType::kF32) << leaf.name;
    }
  }
}

TEST_F(AdaptTest, NamesOfProjectionsAreTakenBehindPaths) {
  const auto adapted_in = [](const char* target) {
    std::set<std::string> out;
    const Program program = step_program(small({.rank = 2, .targets = {target}}));
    for (const std::string& name : names_of(program, LeafKind::kParameter)) {
      if (name.ends_with(kAdapterB)) out.insert(name.substr(0, name.size() - kAdapterB.size()));
    }
    return out;
  };
  EXPECT_THAT(adapted_in("layers.1.*.down_proj"), ElementsAre("layers.1.ffn.w2"));
  EXPECT_THAT(adapted_in("layers.0-1.attn.o"),
              ElementsAre("layers.0.attn.output_proj", "layers.1.attn.output_proj"));
  EXPECT_THAT(message_of(small({.rank = 2, .targets = {"layers.7.*.down"}})),
              HasSubstr("layers.7"));
}

TEST_F(AdaptTest, WhatMatchesNothingIsRefusedByName) {
  EXPECT_THAT(message_of(small({.rank = 2, .targets = {"query"}})),
              AllOf(HasSubstr("\"query\""), HasSubstr("down, gate, k, lm_head, o, q, up, v")));
  EXPECT_THAT(message_of(small({}, {{"layers.7"}})), HasSubstr("no part called \"layers.7\""));
  EXPECT_THAT(message_of(small({}, {{"*"}})), HasSubstr("nothing is left to train"));
}

}  // namespace
}  // namespace tracestep
