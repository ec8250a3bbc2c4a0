// The flags that measure runs again mean exactly these runs.
#include "spec/run_flags.h"

#include <set>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "spec/fields.h"
#include "spec/run_grid.h"

namespace tracestep {
namespace {

using ::testing::ElementsAre;

std::vector<std::string> split(const std::string& text, char by) {
  std::vector<std::string> out;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, by);) out.push_back(part);
  return out;
}

// The runs that a command would make of these flags.
std::set<std::string> runs_of(const std::vector<std::string>& commands) {
  std::set<std::string> out;
  for (const std::string& flags : commands) {
    RunGrid grid({.model = preset("medium"), .shape = {.batch = 64, .context = 4096}});
    const std::vector<std::string> words = split(flags, ' ');
    for (std::size_t i = 0; i + 1 < words.size(); i += 2) {
      const auto field = std::ranges::find(run_fields(), words[i], &RunField::flag);
      if (field == run_fields().end()) {
        ADD_FAILURE() << "no flag " << words[i];
        continue;
      }
      grid.give(*field, words[i], split(words[i + 1], ','));
    }
    for (const RunSpec& run : grid.runs()) out.insert(canonical_text(key_of(run)));
  }
  return out;
}

std::vector<Json> keys_of(const std::vector<RunSpec>& runs) {
  std::vector<Json> out;
  for (const RunSpec& run : runs) out.push_back(key_of(run));
  return out;
}

std::set<std::string> texts_of(const std::vector<Json>& keys) {
  std::set<std::string> out;
  for (const Json& key : keys) out.insert(canonical_text(key));
  return out;
}

TEST(RunFlagsTest, ModesOfOneCellAreOneCommand) {
  RunSpec run{.model = preset("small"), .shape = {4, 128}, .mode = Mode::kForward};
  std::vector<RunSpec> runs{run};
  for (Mode mode : {Mode::kForwardBackward, Mode::kStep, Mode::kForward}) {
    run.mode = mode;
    runs.push_back(run);
  }
  const std::vector<Json> keys = keys_of(runs);
  EXPECT_THAT(
      flags_of(keys),
      ElementsAre("--size small --context 128 --batch 4 --mode forward,forward-backward,step "
                  "--precision fp32 --ops fused"));
  EXPECT_EQ(runs_of(flags_of(keys)), texts_of(keys));
}

TEST(RunFlagsTest, WhatAPresetDoesNotHaveIsSaid) {
  RunSpec bytes{.model = preset("tiny"), .shape = {4, 128}};
  bytes.model.vocab = 256;
  bytes.place = {.device = "cuda", .threads = 2};
  bytes.seed = 3;
  bytes.executor = ExecutorKind::kCompiled;
  const std::vector<Json> keys = keys_of({bytes});
  EXPECT_THAT(flags_of(keys),
              ElementsAre("--size tiny --context 128 --batch 4 --vocab 256 --mode step --precision "
                          "fp32 --ops fused --attention naive --executor compiled --device cuda "
                          "--threads 2 --seed 3"));
  EXPECT_EQ(runs_of(flags_of(keys)), texts_of(keys));
}

TEST(RunFlagsTest, AModelOfItsOwnIsGivenByItsSizes) {
  const std::vector<Json> keys =
      keys_of({{.model = {.vocab = 50, .d_model = 32, .d_ff = 48, .layers = 2, .heads = 2},
                .shape = {2, 16}},
               {.model = {.vocab = 50, .d_model = 64, .d_ff = 48, .layers = 2, .heads = 2},
                .shape = {2, 16}}});
  ASSERT_EQ(flags_of(keys).size(), 2u);
  EXPECT_EQ(runs_of(flags_of(keys)), texts_of(keys));
}

TEST(RunFlagsTest, RunsThatAreNoGridTakeSeveralCommandsAndNoOtherRuns) {
  std::vector<RunSpec> runs;
  for (const char* size : {"tiny", "small"}) {
    for (Mode mode : {Mode::kInference, Mode::kStep}) {
      runs.push_back({.model = preset(size), .shape = {4, 128}, .mode = mode});
    }
  }
  EXPECT_EQ(flags_of(keys_of(runs)).size(), 1u);
  runs.push_back({.model = preset("small"),
                  .shape = {4, 128},
                  .mode = Mode::kStep,
                  .ops = Granularity::kPrimitive});
  const std::vector<Json> keys = keys_of(runs);
  EXPECT_EQ(flags_of(keys).size(), 2u);
  EXPECT_EQ(runs_of(flags_of(keys)), texts_of(keys));
}

// `compile` runs a step eager and compiled when it is not told how.
TEST(RunFlagsTest, AnOptionalFieldIsSaidForAllWhereTheyDifferInIt) {
  const RunSpec eager{.model = preset("tiny"), .shape = {4, 128}};
  RunSpec compiled = eager;
  compiled.executor = ExecutorKind::kCompiled;
  const std::vector<Json> keys = keys_of({eager, compiled});
  EXPECT_THAT(flags_of(keys),
              ElementsAre("--size tiny --context 128 --batch 4 --mode step --precision fp32 --ops "
                          "fused --executor eager,compiled"));
  EXPECT_EQ(runs_of(flags_of(keys)), texts_of(keys));
}

TEST(RunFlagsTest, OtherParametersAreGivenWhereTheyAreAskedFor) {
  const Json narrow = Json::Object{{"context", 256}, {"width", 16}, {"steps", 5}};
  const Json wide = Json::Object{{"context", 256}, {"width", 64}, {"steps", 5}};
  const std::string_view more[] = {"width"};
  EXPECT_THAT(flags_of(std::vector{narrow, wide}, more),
              ElementsAre("--context 256 --width 16,64"));
}

}  // namespace
}  // namespace tracestep
