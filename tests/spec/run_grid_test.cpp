#include "spec/run_grid.h"

#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace tracestep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

void give(RunGrid& grid, std::string_view field, std::vector<std::string> texts) {
  grid.give(field_named(field), "--flag", std::move(texts));
}

RunGrid of_tiny() {
  return RunGrid({.model = preset("tiny"), .shape = {4, 32}});
}

std::vector<std::string> labels(const RunGrid& grid) {
  std::vector<std::string> out;
  for (const RunSpec& run : grid.runs()) out.push_back(label_of(run));
  return out;
}

std::string message_of(const RunGrid& grid) {
  try {
    grid.runs();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUsage);
    return error.what();
  }
  return "";
}

TEST(RunGridTest, WithoutValuesThereIsOneRun) {
  EXPECT_THAT(labels(of_tiny()), ElementsAre("tiny context 32 step fp32 fused"));
}

TEST(RunGridTest, EveryCombinationComesInTheOrderOfTheFields) {
  RunGrid grid = of_tiny();
  give(grid, "ops", {"primitive", "fused"});
  give(grid, "context", {"8", "16"});
  EXPECT_THAT(
      labels(grid),
      ElementsAre("tiny context 8 step fp32 primitive", "tiny context 8 step fp32 fused",
                  "tiny context 16 step fp32 primitive", "tiny context 16 step fp32 fused"));
}

TEST(RunGridTest, WhatIsOfferedGivesWayAndIsNotGiven) {
  RunGrid grid = of_tiny();
  grid.offer("mode", {"inference", "step"});
  EXPECT_FALSE(grid.is_given("mode"));
  EXPECT_EQ(grid.runs().size(), 2u);
  EXPECT_THAT(grid.texts(field_named("mode")), ElementsAre("inference", "step"));
  give(grid, "mode", {"forward"});
  EXPECT_TRUE(grid.is_given("mode"));
  EXPECT_EQ(grid.run().mode, Mode::kForward);
}

TEST(RunGridTest, AValueHasOneTextAndIsThereOnce) {
  RunGrid grid = of_tiny();
  give(grid, "context", {"4k", "128"});
  EXPECT_THAT(grid.texts(field_named("context")), ElementsAre("4096", "128"));
  give(grid, "device", {"GPU"});
  EXPECT_THAT(grid.texts(field_named("device")), ElementsAre("cuda"));
  EXPECT_THROW(give(grid, "context", {"4k", "4096"}), Error);
  EXPECT_THROW(give(grid, "ops", {"norm+softmax", "softmax+norm"}), Error);
}

TEST(RunGridTest, AModelIsAPresetOrItsSizes) {
  RunGrid grid = of_tiny();
  give(grid, "vocab", {"50"});
  EXPECT_EQ(grid.run().model.name, "tiny");
  EXPECT_EQ(grid.run().model.vocab, 50);
  give(grid, "d_model", {"32"});
  EXPECT_THAT(message_of(grid), HasSubstr("[d_ff] a model given by its sizes needs this one"));
  give(grid, "d_ff", {"64"});
  give(grid, "layers", {"1"});
  give(grid, "heads", {"2"});
  const ModelConfig own = grid.run().model;
  EXPECT_EQ(own.name, "custom");
  EXPECT_EQ(own.d_ff, 64);
  EXPECT_EQ(own.vocab, 50);
  give(grid, "heads", {"3"});
  EXPECT_THAT(message_of(grid), HasSubstr("[heads] 3 heads do not divide"));
  give(grid, "size", {"small"});
  EXPECT_THAT(message_of(grid), HasSubstr("[size] small comes with its own widths"));
}

// Ignored without a word, it would seem to cost and to save nothing.
TEST(RunGridTest, WhatInferenceAloneCannotComputeAgainIsRefused) {
  RunGrid grid = of_tiny();
  give(grid, "recompute", {"blocks"});
  give(grid, "mode", {"inference"});
  EXPECT_THAT(message_of(grid), HasSubstr("inference keeps nothing for backward"));
  RunGrid both = of_tiny();
  give(both, "recompute", {"blocks"});
  give(both, "mode", {"inference", "step"});
  EXPECT_EQ(both.runs().size(), 2u);
}

// Each would be the named difference of results that are alike.
TEST(RunGridTest, AFieldWithoutEffectIsRefusedAloneAndOneRunAmongOthers) {
  struct Case {
    std::string field;
    std::vector<std::string> values;
    std::string where, without, with;  // a field, and its values without and with an effect
  };
  const Case cases[] = {{"updates", {"end", "early"}, "mode", "forward", "step"},
                        {"offload", {"none", "optimizer"}, "mode", "forward-backward", "step"},
                        {"grad_accum_dtype", {"fp32", "low"}, "precision", "bf16-pure", "bf16"},
                        {"moments", {"fp32", "bf16"}, "mode", "inference", "step"},
                        {"optimizer", {"adamw", "muon"}, "mode", "forward", "step"},
                        {"accumulate", {"1", "3"}, "mode", "forward-backward", "step"},
                        {"loss_chunks", {"1", "2"}, "mode", "inference", "forward"},
                        {"recompute", {"none", "blocks"}, "mode", "inference", "step"},
                        {"launch_order", {"serial", "dependent"}, "executor", "arena", "compiled"},
                        {"fp8_products", {"paying", "all"}, "precision", "bf16", "fp8"},
                        {"fp8_scaling", {"delayed", "current"}, "precision", "fp32", "fp8"},
                        {"freeze", {"none", "layers.0"}, "lora", "r=2", "none"}};
  EXPECT_EQ(fields_that([](const RunField& f) { return f.no_effect != nullptr; }).size(),
            std::size(cases));
  for (const Case& c : cases) {
    RunGrid alone = of_tiny();
    give(alone, c.field, c.values);
    give(alone, c.where, {c.without});
    EXPECT_THAT(message_of(alone), HasSubstr("[" + c.field + "] ")) << c.field;
    RunGrid both = of_tiny();
    if (c.field == "grad_accum_dtype") give(both, "accumulate", {"2"});  // needs both
    give(both, c.field, c.values);
    give(both, c.where, {c.without, c.with});
    const std::vector<RunSpec> runs = both.runs();
    ASSERT_EQ(runs.size(), 3u) << c.field;  // one without the effect, two with it
    std::set<std::string> labels;
    for (const RunSpec& run : runs) labels.insert(label_of(run));
    EXPECT_EQ(labels.size(), 3u) << c.field;
    // The usual value is said of runs without the effect, and asks for none.
    RunGrid usual = of_tiny();
    give(usual, c.field, {c.values[0]});
    give(usual, c.where, {c.without});
    EXPECT_EQ(usual.runs().size(), 1u) << c.field;
  }
}

TEST(RunGridTest, AStepBeyondCountingIsRefused) {
  RunGrid grid = of_tiny();
  give(grid, "context", {"1048576"});
  give(grid, "batch", {"1048576"});
  EXPECT_THAT(message_of(grid), HasSubstr("more than an exbibyte"));
}

}  // namespace
}  // namespace tracestep
