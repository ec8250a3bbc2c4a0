// How devices share a step: which choices there are, which of them is proposed, and what a training
// takes on them.
#include "lab/fit/plan.h"
#include "lab/predict/published_times.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "exec/executor.h"
#include "ops/functions.h"
#include "spec/parse_words.h"
#include "spec/step_program.h"

namespace tracestep {
namespace {

constexpr std::int64_t kGiB = std::int64_t{1} << 30;

class RanksTest : public ::testing::Test {
 protected:
  void SetUp() override { ops::register_all(); }

  static RunSpec step() {
    return {.model = {.vocab = 512, .d_model = 64, .d_ff = 256, .layers = 8, .heads = 4},
            .shape = {.batch = 8, .context = 128},
            .precision = {.autocast = DType::kBF16},
            .attention = AttentionForm::kFlash};
  }
};

std::vector<std::string> names_of(const std::vector<Parallel>& choices) {
  std::vector<std::string> out;
  for (const Parallel& choice : choices) out.push_back(name_of(choice));
  return out;
}

TEST_F(RanksTest, ChoicesAreThoseThatModelAndBatchCanBeDividedBy) {
  using ::testing::ElementsAre;
  EXPECT_THAT(names_of(parallel_choices(step(), 2, 8)),
              ElementsAre("dp=2", "dp=2,shard=1", "dp=2,shard=2", "dp=2,shard=3", "tp=2,sp"));
  RunSpec few = step();
  few.shape.batch = 2;  // four replicas have no equal share of it, and 8 ranks none of 4 heads
  EXPECT_THAT(names_of(parallel_choices(few, 8, 8)),
              ElementsAre("dp=2,tp=4,sp", "dp=2,shard=1,tp=4,sp", "dp=2,shard=2,tp=4,sp",
                          "dp=2,shard=3,tp=4,sp"));
  few.shape.batch = 3;
  EXPECT_TRUE(parallel_choices(few, 8, 8).empty());
  for (const Parallel& choice : parallel_choices(step(), 8, 2)) EXPECT_LE(choice.tensor, 2);
}

// Against every choice of ranks with every one of these changes.
TEST_F(RanksTest, TheFastestWayToShareAStepIsFound) {
  const auto model = make_time_model(DevicePeaks{"a device", 10, 100, 1000});
  const Predictor times{*model, {}, Link{.gb_s = 20, .call_us = 10}};
  const DeviceTraits traits{.kind = DeviceKind::kCuda};
  RunSpec asked = step();
  asked.loss_chunks = 0;
  asked.updates = UpdateTime::kEarly;
  FitQuestion question{.step = asked, .traits = traits, .margin = 0, .times = &times};
  question.parallels = parallel_choices(asked, 4, 4);
  struct Tried {
    std::int64_t peak_bytes;
    double ms;
  };
  std::vector<Tried> all;
  for (const Parallel& parallel : question.parallels) {
    for (const char* again :
         {"none", "layers.*.ffn", "layers.*.attn", "blocks", "every=2", "every=4"}) {
      RunSpec each = asked;
      each.parallel = parallel;
      each.recompute = parse_recomputation("test", again);
      const Program program = step_program(each, traits);
      all.push_back({predicted_peak_bytes(each.executor, program, traits),
                     predict_program(each, program, traits, times).time.ms});
    }
  }
  const auto [least, most] = std::ranges::minmax(all, {}, &Tried::peak_bytes);
  for (const double fill : {0.1, 0.4, 0.8}) {
    question.limit_bytes =
        least.peak_bytes +
        static_cast<std::int64_t>(fill * static_cast<double>(most.peak_bytes - least.peak_bytes));
    double best = std::numeric_limits<double>::infinity();
    for (const Tried& tried : all) {
      if (tried.peak_bytes <= question.limit_bytes) best = std::min(best, tried.ms);
    }
    const Advice advice = advise(question);
    ASSERT_FALSE(advice.remedies.empty()) << fill;
    const Remedy& first = advice.remedies[0];
    EXPECT_EQ(first.severity, ChangeSeverity::kSameNumbers);
    EXPECT_EQ(first.step.parallel.ranks, 4);
    EXPECT_LE(first.figures.ms, 1.02 * best) << first.command;
    EXPECT_LE(first.figures.peak_bytes, question.limit_bytes) << first.command;
  }
}

TEST_F(RanksTest, ALinkBetweenNodesIsTheirNetwork) {
  const auto model = make_time_model(DevicePeaks{"a device", 10, 100, 1000});
  RunSpec run = step();
  const auto collectives_ms = [&](const char* parallel, const Link& link) {
    run.parallel = parse_parallel("test", parallel);
    const Predictor times{*model, {}, link};
    return predict_run(run, {.kind = DeviceKind::kCuda}, times).time.collectives_ms;
  };
  const Link one_node{.gb_s = 20}, two_nodes{.gb_s = 20, .network_gb_s = 5, .of_node = 2};
  EXPECT_NEAR(collectives_ms("dp=4", two_nodes), 4 * collectives_ms("dp=4", one_node), 1e-6);
  EXPECT_EQ(collectives_ms("dp=2", two_nodes), collectives_ms("dp=2", one_node));
  // Tensor parallel ranks are neighbours; replicas are one on each node.
  EXPECT_EQ(collectives_ms("dp=1,tp=2", two_nodes), collectives_ms("dp=1,tp=2", one_node));
  EXPECT_GT(collectives_ms("dp=2,tp=2", two_nodes), collectives_ms("dp=2,tp=2", one_node));
}

TEST_F(RanksTest, DaysAndPricesFollowFromTokensASecond) {
  const auto model = make_time_model(DevicePeaks{"a device", 10, 100, 1000});
  const Predictor times{*model};
  const FitQuestion question{.step = step(), .traits = {}, .limit_bytes = kGiB, .times = &times};
  const Remedy plan{.step = step(), .figures = {.peak_bytes = kGiB / 2, .ms = 1024}};
  EXPECT_DOUBLE_EQ(tokens_per_s(question, plan), 1000);  // 8 times 128 in 1.024 s
  const Training training{
      .device = "a device", .devices = 4, .tokens = 864'000'000, .cost_per_hour = 2};
  const Table table = plan_table(question, {plan}, training);
  const auto cell = [&](const char* column) {
    return table.rows.at(0).at(*table.index_of(column));
  };
  EXPECT_DOUBLE_EQ(cell("days").as_double(), 10);
  EXPECT_DOUBLE_EQ(cell("device_hours").as_double(), 960);
  EXPECT_DOUBLE_EQ(cell("cost").as_double(), 1920);
  EXPECT_EQ(cell("tokens").as_string(), "864.00 M");
  EXPECT_EQ(days_of({.days = 3}, 1000), 3);
  EXPECT_EQ(
      plan_table(question, {plan}, {.days = 10}).rows[0][*table.index_of("tokens")].as_string(),
      "864.00 M");
}

}  // namespace
}  // namespace tracestep
