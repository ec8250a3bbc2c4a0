// Tests the search for changes that make a step fit: against every set of changes of small random
// steps, against steps that run, and for the questions that people ask about large ones.
#include "lab/fit/search.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "analysis/memory_map.h"
#include "analysis/plan.h"
#include "base/units.h"
#include "exec/executor.h"
#include "lab/fit/change_sets.h"
#include "lab/fit/fit_questions.h"
#include "lab/fit/peak_bounds.h"
#include "lab/fit/plan.h"
#include "lab/memory/run.h"
#include "ops/functions.h"
#include "passes/recompute_budget.h"
#include "spec/micro_batches.h"
#include "spec/parse_words.h"
#include "spec/step_program.h"
#include "support/backends.h"

namespace tracestep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::int64_t kGiB = std::int64_t{1} << 30;

class SearchTest : public ::testing::Test {
 protected:
  void SetUp() override { ops::register_all(); }

  static std::int64_t peak_of(const RunSpec& step, const DeviceTraits& traits) {
    return predicted_peak_bytes(step.executor, step_program(step, traits), traits);
  }
  static std::vector<std::string> commands(const Advice& advice) {
    std::vector<std::string> out;
    for (const Remedy& r : advice.remedies) out.push_back(r.command);
    return out;
  }
};

// Tests that take long under sanitizers, by paths that the others cover.
class MoreSearchTest : public SearchTest {};

RunSpec seven_billion() {
  RunSpec out{.model = {.vocab = 32000, .d_model = 4096, .d_ff = 11008, .layers = 32, .heads = 32},
              .shape = {.batch = 1, .context = 4096},
              .precision = parse_precision("test", "bf16"),
              .attention = AttentionForm::kFlash};
  return out;
}

// --- questions about large steps ----------------------------------------------------------------

TEST_F(SearchTest, SevenBillionInEightyGibibytesKeepTheirNumbersWhereNoMarginIsAsked) {
  const Advice exactly = advise(
      {.step = seven_billion(), .traits = {.threads = 2}, .limit_bytes = 80 * kGiB, .margin = 0});
  ASSERT_FALSE(exactly.remedies.empty());
  EXPECT_EQ(exactly.remedies[0].command, "--updates early --recompute blocks");
  EXPECT_EQ(format_bytes(exactly.remedies[0].figures.peak_bytes), "78.42 GiB");
  EXPECT_EQ(exactly.remedies[0].severity, ChangeSeverity::kSameNumbers);
}

// Weights and states alone are 75.3 GiB: with a margin, states are narrow or elsewhere.
TEST_F(MoreSearchTest, WithAMarginTheirStatesAreNarrowOrInTheHostsMemory) {
  for (const DeviceKind kind : {DeviceKind::kCpu, DeviceKind::kCuda}) {
    const FitQuestion question{
        .step = seven_billion(), .traits = {.kind = kind, .threads = 2}, .limit_bytes = 80 * kGiB};
    const Advice advice = advise(question);
    ASSERT_FALSE(advice.remedies.empty());
    for (const Remedy& r : advice.remedies) {
      EXPECT_TRUE(r.keeps_task());
      EXPECT_LE(r.figures.peak_bytes, question.within_bytes());
      const bool is_narrow = r.step.optimizer.moments != Moments::kF32;
      EXPECT_TRUE(is_narrow || r.step.offload == Offload::kOptimizer) << r.command;
    }
    ASSERT_TRUE(advice.tight.has_value());
    EXPECT_EQ(advice.tight->command, "--updates early --recompute blocks");
  }
}

TEST_F(MoreSearchTest, ALongContextKeepsItsTaskByFlashAttentionAndRecomputation) {
  FitQuestion question{
      .step = {.model = preset("small"), .shape = {.batch = 4, .context = 100'000}},
      .traits = {.kind = DeviceKind::kCuda},
      .limit_bytes = 79 * kGiB};
  const Advice advice = advise(question);
  ASSERT_FALSE(advice.remedies.empty());
  EXPECT_EQ(advice.remedies[0].severity, ChangeSeverity::kOtherRoundings);
  for (const Remedy& r : advice.remedies) {
    EXPECT_EQ(r.step.shape.context, 100'000) << r.command;
    EXPECT_THAT(r.command, AllOf(HasSubstr("--attention flash"), HasSubstr("--recompute")));
    EXPECT_LE(r.figures.peak_bytes, question.within_bytes()) << r.command;
  }
  EXPECT_LE(
      std::ranges::min(advice.remedies, {}, [](const Remedy& r) { return r.figures.peak_bytes; })
          .figures.peak_bytes,
      43 * kGiB);
}

TEST_F(MoreSearchTest, WhereNothingFitsTheLeastPeaksAreThose) {
  const RunSpec step = seven_billion();
  const DeviceTraits traits{.threads = 2};
  const Advice advice = advise({.step = step, .traits = traits, .limit_bytes = 4 * kGiB});
  EXPECT_TRUE(advice.remedies.empty());
  ASSERT_TRUE(advice.least && advice.least_sequence);
  EXPECT_TRUE(advice.least->keeps_task());
  EXPECT_EQ(advice.least->figures.peak_bytes, peak_of(advice.least->step, traits));
  EXPECT_LT(advice.least->figures.peak_bytes, 42 * kGiB);
  // Weights of four bytes and two states of one.
  EXPECT_GE(advice.least->figures.kept_bytes, 6 * parameter_formula(step.model));
}

TEST_F(MoreSearchTest, AnotherTaskIsProposedOnlyWhereNothingElseFits) {
  RunSpec step = seven_billion();
  step.shape.batch = 8;
  const DeviceTraits traits{.threads = 2};
  const Advice keeps = advise({.step = step, .traits = traits, .limit_bytes = 80 * kGiB});
  const std::int64_t least = peak_of(keeps.remedies.back().step, traits);
  for (const Remedy& r : keeps.remedies) EXPECT_TRUE(r.keeps_task()) << r.command;
  const Advice smaller =
      advise({.step = step, .traits = traits, .limit_bytes = 46 * kGiB, .margin = 0});
  ASSERT_FALSE(smaller.remedies.empty());
  EXPECT_GT(least, 46 * kGiB);
  EXPECT_LT(smaller.remedies[0].step.shape.batch, 8);
  EXPECT_EQ(smaller.remedies[0].step.shape.context, step.shape.context);
  EXPECT_GE(smaller.least->figures.peak_bytes, 46 * kGiB);
}

// --- small ones against every set ---------------------------------------------------------------

class AgainstAllSets : public SearchTest, public ::testing::WithParamInterface<unsigned> {};

TEST_P(AgainstAllSets, TheBestOfEverySeverityIsFound) {
  testing::register_fit_devices();
  std::mt19937 random(GetParam());
  EXPECT_EQ(testing::fault_of(testing::random_case(random)), "");
}

// Some of those of tools/soak/fit_questions.py.
INSTANTIATE_TEST_SUITE_P(Questions, AgainstAllSets,
                         ::testing::Values(1'000'000U, 1'000'001U, 1'000'003U));
INSTANTIATE_TEST_SUITE_P(MoreQuestions, AgainstAllSets,
                         ::testing::Values(1'000'002U, 1'000'004U, 1'000'006U, 1'000'007U,
                                           1'000'009U, 1'000'010U, 1'000'012U, 1'000'013U,
                                           1'000'014U, 1'000'015U));

// Steps of more layers than figures of few layers need, so that bounds are used.
class AgainstAllSetsOfMany : public SearchTest, public ::testing::WithParamInterface<unsigned> {};

TEST_P(AgainstAllSetsOfMany, TheBestOfEverySeverityIsFound) {
  testing::register_fit_devices();
  std::mt19937 random(GetParam());
  testing::FitCase question = testing::random_case(random);
  question.step.model.layers = 16;
  EXPECT_EQ(testing::fault_of(question), "");
}

INSTANTIATE_TEST_SUITE_P(Questions, AgainstAllSetsOfMany, ::testing::Values(902'000'009U));
INSTANTIATE_TEST_SUITE_P(MoreQuestions, AgainstAllSetsOfMany, ::testing::Values(902'000'004U));

// The best way to share the step divides its batch further than a faster one (the first five), or
// is the best only with changes (two); a set that nearly fits is faster than the best (the last).
INSTANTIATE_TEST_SUITE_P(MoreOnceMissed, AgainstAllSets,
                         ::testing::Values(1'000'028U, 4'000'000U, 5'000'009U, 6'000'110U,
                                           9'000'004U, 12'000'068U, 14'000'117U, 2'000'031U));

// Six questions each.
class AFewLayers : public SearchTest, public ::testing::WithParamInterface<int> {};
INSTANTIATE_TEST_SUITE_P(Questions, AFewLayers, ::testing::Values(0));
INSTANTIATE_TEST_SUITE_P(MoreQuestions, AFewLayers, ::testing::Range(1, 5));

// The live bytes to the byte; an arena's, which are rounded up, within a hundredth.
TEST_P(AFewLayers, TellTheBytesAndTheTimeOfMany) {
  std::mt19937 random(static_cast<unsigned>(GetParam()));
  for (int i = 6 * GetParam(); i < 6 * GetParam() + 6; ++i) {
    testing::FitCase q = testing::random_case(random);
    q.step.model.layers = 18 + i % 8;
    const char* choices[] = {"none", "blocks", "every=2", "layers.*.attn", "layers.*.ffn"};
    q.step.recompute = parse_recomputation("test", choices[i % 5]);
    if (i % 3 == 0) q.step.updates = UpdateTime::kEarly;
    if (i % 4 == 0) q.step.loss_chunks = 0;
    ASSERT_TRUE(sketched_depths(q.step)) << i;
    FiguresOfSteps figures(q.traits, nullptr);
    const StepFigures sketch = figures.sketch(q.step), exact = figures.exact(q.step);
    EXPECT_EQ(sketch.kept_bytes, exact.kept_bytes);
    EXPECT_NEAR(sketch.ms, exact.ms, 0.02 * exact.ms) << i;
    if (!has_arena(q.step.executor)) {
      EXPECT_EQ(sketch.peak_bytes, exact.peak_bytes) << i;
      continue;
    }
    const Plan plan = plan_step(step_program(q.step, q.traits), q.traits);
    const auto filled = static_cast<double>(plan.leaf_bytes + plan.least_arena_bytes);
    EXPECT_NEAR(static_cast<double>(sketch.peak_bytes), filled, 0.01 * filled) << i;
  }
}

// The inputs that nested blocks hold grow with the levels of halving, gradients with the layers;
// but for what an arena cannot fill.
TEST_P(AFewLayers, TellThePeakOfManyThatAreNested) {
  std::mt19937 random(static_cast<unsigned>(GetParam()));
  int told = 0;
  for (int i = 6 * GetParam(); i < 6 * GetParam() + 6; ++i) {
    testing::FitCase q = testing::random_case(random);
    q.step.model.layers = 17 + 4 * (i % 6);
    q.step.recompute = Recomputation::nested();
    if (i % 3 == 0) q.step.updates = UpdateTime::kEarly;
    if (i % 2 == 0) q.step.lora = parse_adapters("test", "r=4,targets=all");
    FiguresOfSteps figures(q.traits, nullptr);
    const std::optional<std::int64_t> peak = figures.nested_peak(q.step);
    if (!peak) continue;
    ++told;
    const Plan plan = plan_step(step_program(q.step, q.traits), q.traits);
    const auto filled = static_cast<double>(plan.leaf_bytes + plan.least_arena_bytes);
    const double exact =
        has_arena(q.step.executor) ? filled : static_cast<double>(figures.exact(q.step).peak_bytes);
    const double error = has_arena(q.step.executor) ? 0.05 : 0.01;
    EXPECT_NEAR(static_cast<double>(*peak), exact, error * exact) << i;
  }
  EXPECT_GE(told, 3);
}

// Compiled, ranks send and sum for several layers at once, and gather weights ahead.
TEST_F(MoreSearchTest, AFewLayersTellTheBytesOfRanksAndMicroBatches) {
  RunSpec step = seven_billion();
  step.model.layers = 21;
  step.shape.batch = 16;
  step.executor = ExecutorKind::kCompiled;
  const DeviceTraits traits{.kind = DeviceKind::kCuda};
  for (const char* parallel : {"none", "dp=8", "dp=8,shard=2", "dp=8,shard=3", "dp=4,tp=2,sp"}) {
    for (const char* again : {"none", "blocks"}) {
      for (const std::int64_t micro_batches : {1, 2}) {
        step.parallel = parse_parallel("test", parallel);
        step.recompute = parse_recomputation("test", again);
        ASSERT_TRUE(sketched_depths(step));
        FiguresOfSteps figures(traits, nullptr);
        const StepFigures sketch = figures.sketch(step, micro_batches);
        const std::vector<StepPart> parts = parts_of_step(step, micro_batches, traits);
        std::int64_t live = leaf_bytes(parts);
        for (const StepPart& part : parts) {
          live += std::ranges::max(
                      live_bytes_by_node(part.program, plan_buffers(part.program), traits)) -
                  leaf_bytes({&part, 1});
        }
        const auto exact = static_cast<double>(live);
        EXPECT_NEAR(static_cast<double>(sketch.peak_bytes), exact, 0.02 * exact)
            << parallel << " " << again << " in " << micro_batches;
        EXPECT_EQ(sketch.kept_bytes, kept_bytes(parts));
      }
    }
  }
}

// Blocks that run again in groups hold no less than single ones but for the inputs between them:
// what the search leaves out by, at any number of layers.
TEST_P(AFewLayers, InGroupsSaveNoMoreThanTheInputsBetweenThem) {
  std::mt19937 random(static_cast<unsigned>(10 + GetParam()));
  for (int i = 0; i < 6; ++i) {
    testing::FitCase q = testing::random_case(random);
    q.step.model.layers = 32;
    if (!q.parallels.empty()) q.step.parallel = q.parallels[random() % q.parallels.size()];
    if (i % 2 == 0) q.step.executor = ExecutorKind::kCompiled;
    FiguresOfSteps figures(q.traits, nullptr);
    q.step.recompute = Recomputation::blocks();
    const StepFigures single = figures.sketch(q.step);
    ASSERT_TRUE(single.saved_bytes);
    for (const int every : {2, 4}) {
      q.step.recompute = Recomputation::blocks(every);
      const StepFigures groups = figures.sketch(q.step);
      const std::int64_t inputs = *single.saved_bytes * (32 - 32 / every);
      EXPECT_GE(1.01 * static_cast<double>(groups.peak_bytes),
                static_cast<double>(single.peak_bytes - inputs))
          << i;
      EXPECT_GE(groups.ms, single.ms) << i;
    }
  }
}

// On several devices and on one, compiled and eager.
class PeakBoundsTest : public SearchTest, public ::testing::WithParamInterface<int> {};
INSTANTIATE_TEST_SUITE_P(Questions, PeakBoundsTest, ::testing::Values(0));
INSTANTIATE_TEST_SUITE_P(MoreQuestions, PeakBoundsTest, ::testing::Range(1, 4));

// The search leaves out such sets before they have a program, by what it learnt from others.
TEST_P(PeakBoundsTest, NoSetHoldsLess) {
  const int i = GetParam();
  std::mt19937 random(static_cast<unsigned>(19 + i));
  testing::FitCase q = testing::random_case(random);
  q.step.model.layers = 24;
  q.step.shape.batch = 8;
  q.traits.kind = DeviceKind::kCuda;
  if (i % 2 == 0) q.step.executor = ExecutorKind::kCompiled;
  if (i % 3 == 0) q.parallels = parallel_choices(q.step, 2, 2);
  const FitQuestion question{.step = q.step,
                             .traits = q.traits,
                             .parallels = q.parallels,
                             .division = BatchDivision::kFreely};
  Judge judge(question);
  PeakBounds bounds(judge);
  const ChangeSets sets(judge);
  std::vector<ChangeSet> all = sets.whole();
  std::ranges::move(sets.divided(1e9), std::back_inserter(all));
  std::ranges::shuffle(all, random);
  all.resize(std::min<std::size_t>(all.size(), 8));
  for (ChangeSet& set : all) {
    Remedy& r = set.remedy;
    const std::int64_t least = bounds.least_bytes(r);
    judge.sketch(r);
    EXPECT_LE(static_cast<double>(least), 1.01 * static_cast<double>(r.figures.peak_bytes))
        << i << " " << r.command;
    EXPECT_EQ(bounds.kept_bytes(r), r.figures.kept_bytes) << i << " " << r.command;
    bounds.learn(r, r.figures);
  }
}

// A program that does not update has the same bytes whatever the optimizer keeps, and where.
TEST_F(SearchTest, StepsThatDifferInTheirOptimizerShareMicroBatches) {
  RunSpec step = seven_billion();
  step.model.layers = 21;
  step.shape.batch = 4;
  step.executor = ExecutorKind::kCompiled;
  const DeviceTraits traits{.kind = DeviceKind::kCuda};
  FiguresOfSteps shared(traits, nullptr);
  for (const Moments moments : {Moments::kF32, Moments::kBF16}) {
    for (const Offload offload : {Offload::kNone, Offload::kOptimizer}) {
      step.optimizer.moments = moments;
      step.offload = offload;
      const StepFigures sketch = shared.sketch(step, 2), exact = shared.exact(step, 2);
      EXPECT_EQ(sketch.kept_bytes, exact.kept_bytes);
      EXPECT_EQ(sketch.host_bytes, exact.host_bytes);
      EXPECT_NEAR(sketch.ms, exact.ms, 0.001 * exact.ms);
    }
  }
  EXPECT_EQ(shared.programs(), 4 + 2 * (2 + 4));  // whole; of two depths, two parts and updates
}

// On a device that has no more than the limit.
TEST_F(MoreSearchTest, WhatIsProposedRunsWithinTheLimit) {
  std::mt19937 random(3);
  int ran = 0;
  for (int i = 0; i < 6; ++i) {
    testing::FitCase q = testing::random_case(random);
    q.traits.kind = DeviceKind::kCpu;
    q.step.model.layers = std::min<std::int64_t>(q.step.model.layers, 3);
    q.step.place.threads = 2;
    const std::int64_t limit = peak_of(q.step, q.traits) * 3 / 4;
    const FitQuestion question{.step = q.step, .traits = q.traits, .limit_bytes = limit};
    for (const Remedy& r : advise(question).remedies) {
      const MemoryRun run = run_memory(
          [&](const RunSpec&) {
            return testing::backend_named("cpu").make({.threads = 2, .memory_limit = limit});
          },
          {.step = r.step});
      EXPECT_EQ(run.status, Status::kOk) << r.command;
      EXPECT_EQ(run.peak_bytes, r.figures.peak_bytes) << r.command;
      ++ran;
    }
  }
  EXPECT_GE(ran, 6);
}

// --- kinds of changes
// -----------------------------------------------------------------------------

RunSpec small_step() {
  return {.model = {.vocab = 50, .d_model = 32, .d_ff = 64, .layers = 3, .heads = 2},
          .shape = {.batch = 2, .context = 64}};
}

TEST_F(SearchTest, ABudgetAboveTheLimitIsReplacedByIt) {
  RunSpec step = small_step();
  step.recompute = {.kind = Recomputation::Kind::kBudget,
                    .budget_bytes = peak_of(small_step(), {}) * 9 / 10};
  const std::int64_t limit = peak_of(step, {}) * 98 / 100;
  const Advice advice = advise({.step = step, .traits = {}, .limit_bytes = limit, .margin = 0});
  ASSERT_FALSE(advice.remedies.empty());
  for (const Remedy& r : advice.remedies) EXPECT_LE(peak_of(r.step, {}), limit) << r.command;
  EXPECT_THAT(commands(advice), ::testing::Contains(HasSubstr("--recompute budget=")));
}

// In a unit that people would write, and never more than there is.
TEST_F(SearchTest, ABudgetIsAWholeNumberOfItsUnit) {
  const std::int64_t limit = (std::int64_t{1} << 20) + 12'345;
  RunSpec step = small_step();
  step.shape.batch = 4;
  ASSERT_GT(peak_of(step, {}), limit);
  const Advice advice = advise({.step = step, .traits = {}, .limit_bytes = limit, .margin = 0});
  ASSERT_FALSE(advice.remedies.empty());
  EXPECT_THAT(commands(advice), ::testing::Contains(HasSubstr("--recompute budget=1036KiB")));
}

TEST_F(SearchTest, TheHostsMemoryIsAPlaceOnlyWhereTheDeviceHasItsOwn) {
  const RunSpec step{.model = {.vocab = 50, .d_model = 64, .d_ff = 128, .layers = 3, .heads = 2},
                     .shape = {.batch = 1, .context = 4}};
  for (const DeviceKind kind : {DeviceKind::kCpu, DeviceKind::kCuda}) {
    const DeviceTraits traits{.kind = kind};
    RunSpec moved = step;
    moved.offload = Offload::kOptimizer;
    const std::int64_t limit = std::min(peak_of(moved, traits), peak_of(step, traits) - 1);
    const Advice advice =
        advise({.step = step, .traits = traits, .limit_bytes = limit, .margin = 0});
    std::int64_t on_host = 0;
    for (const Remedy& r : advice.remedies) on_host = std::max(on_host, r.figures.host_bytes);
    EXPECT_EQ(on_host, kind == DeviceKind::kCuda ? 8 * parameter_formula(step.model) : 0);
  }
}

TEST_F(SearchTest, StatesOfAnOptimizerAreChangedInStepsAlone) {
  for (const Mode mode : {Mode::kStep, Mode::kForwardBackward}) {
    RunSpec step = small_step();
    step.mode = mode;
    const Advice advice =
        advise({.step = step, .traits = {}, .limit_bytes = peak_of(step, {}) / 2});
    const bool has_states = std::ranges::any_of(
        advice.remedies, [](const Remedy& r) { return r.step.optimizer.moments != Moments::kF32; });
    EXPECT_FALSE(mode != Mode::kStep && has_states);
    for (const Remedy& r : advice.remedies) EXPECT_EQ(r.step.mode, mode);
  }
}

// Where no set of the whole batch fits in its own precision.
TEST_F(MoreSearchTest, ATrainingAddsUpGradientsWhereNothingElseFits) {
  RunSpec step = small_step();
  step.shape = {.batch = 32, .context = 256};
  RunSpec least = step;
  least.attention = AttentionForm::kFlash;
  least.recompute = Recomputation::blocks();
  least.updates = UpdateTime::kEarly;
  least.loss_chunks = 0;
  const std::int64_t limit = peak_of(least, {}) * 6 / 10;
  const FitQuestion question{.step = step, .traits = {}, .limit_bytes = limit};
  for (const Remedy& r : advise(question).remedies) {
    EXPECT_GT(r.severity, ChangeSeverity::kOtherRoundings) << r.command;
  }
  FitQuestion divided = question;
  divided.division = BatchDivision::kIfNeeded;
  const Advice advice = advise(divided);
  ASSERT_FALSE(advice.remedies.empty());
  const Remedy& first = advice.remedies[0];
  EXPECT_EQ(first.severity, ChangeSeverity::kOtherRoundings);
  EXPECT_GT(first.micro_batches, 1);
  EXPECT_THAT(first.command, HasSubstr("--accumulate"));
  EXPECT_EQ(first.step.shape.batch, step.shape.batch);
  EXPECT_LE(
      predicted_peak_bytes(step.executor, parts_of_step(first.step, first.micro_batches, {}), {}),
      question.within_bytes());
}

TEST_F(SearchTest, ABatchThatFitsWholeIsNotDivided) {
  RunSpec step = small_step();
  step.shape = {.batch = 8, .context = 256};
  FitQuestion question{.step = step, .traits = {}, .limit_bytes = peak_of(step, {}) * 8 / 10};
  const Advice whole = advise(question);
  question.division = BatchDivision::kIfNeeded;
  EXPECT_EQ(commands(advise(question)), commands(whole));
}

// Weights, gradients and moments are more than the limit: the adapters come behind all else.
TEST_F(SearchTest, AdaptersAreTheLastChangeOfTheTask) {
  RunSpec step = small_step();
  step.model.d_model = 512;
  step.model.d_ff = 1024;
  step.shape = {.batch = 1, .context = 8};
  RunSpec adapters = step;
  adapters.lora = {.rank = 16, .alpha = 32, .targets = {"all"}};
  const DeviceTraits traits{.threads = 2};
  const std::int64_t limit = peak_of(adapters, traits) + 1;
  ASSERT_LT(2 * limit, peak_of(step, traits));
  const Advice advice = advise({.step = step, .traits = traits, .limit_bytes = limit, .margin = 0});
  ASSERT_FALSE(advice.remedies.empty());
  EXPECT_EQ(advice.remedies.back().step.lora, adapters.lora);
  EXPECT_EQ(advice.remedies.back().severity, ChangeSeverity::kOtherTask);
  EXPECT_LE(advice.remedies.back().figures.peak_bytes, limit);
  EXPECT_THAT(advice.remedies.back().command,
              ::testing::HasSubstr("--lora r=16,alpha=32,targets=all"));
}

// No change of a form saves an inference step's logits.
TEST_F(SearchTest, TheLargestBatchIsTheSmallestChangeOfTheTask) {
  RunSpec step = small_step();
  step.model.vocab = 3000;
  step.mode = Mode::kInference;
  step.attention = AttentionForm::kFlash;
  step.shape.batch = 7;
  RunSpec smaller = step;
  smaller.shape.batch = 4;
  const std::int64_t limit = peak_of(smaller, {});
  const Advice advice = advise({.step = step, .traits = {}, .limit_bytes = limit, .margin = 0});
  ASSERT_FALSE(advice.remedies.empty());
  EXPECT_EQ(advice.remedies[0].command, "--batch 4");
  EXPECT_EQ(advice.remedies[0].what, "batch 7 → 4");
  EXPECT_EQ(advice.remedies[0].severity, ChangeSeverity::kOtherTask);
}

}  // namespace
}  // namespace tracestep
