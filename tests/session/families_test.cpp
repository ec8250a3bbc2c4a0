// Steps of every family hold the bytes that were predicted: in every mode, precision and form, with
// recomputation, and on each of two ranks.
#include <gtest/gtest.h>

#include "backends/comm/local/local_group.h"
#include "backends/cpu/cpu_device.h"
#include "ops/functions.h"
#include "session/devices.h"
#include "session/session.h"
#include "spec/parse_words.h"
#include "support/family_models.h"
#include "train/step_inputs.h"

namespace tracestep {
namespace {

class FamilyStepsTest : public ::testing::TestWithParam<ModelConfig> {
 protected:
  void SetUp() override {
    ops::register_all();
    register_group([](Device&, int ranks) { return make_local_group(ranks); });
    register_device(
        "cpu", [](const RunSpec& run) { return make_cpu_device({.threads = run.place.threads}); });
  }

  static RunSpec spec(Mode mode, const char* precision) {
    return {.model = GetParam(),
            .shape = {.batch = 2, .context = 12},
            .mode = mode,
            .precision = parse_precision("precision", precision),
            .place = {.device = "cpu", .threads = 1}};
  }
};

void expect_predicted(const RunSpec& spec) {
  const auto device = make_device(spec);
  Session session(*device, spec);
  fill_for_timing(session);
  session.executor().run();
  for (int rank = 0; rank < session.ranks(); ++rank) session.device(rank).allocator().reset_peak();
  session.executor().run();
  for (int rank = 0; rank < session.ranks(); ++rank) {
    EXPECT_EQ(session.device(rank).allocator().stats().peak_requested_bytes,
              session.executor().predicted_peak_bytes())
        << name_of(spec.mode) << " " << name_of(spec.precision) << " " << name_of(spec.attention)
        << " " << name_of(spec.executor) << " " << name_of(spec.recompute) << " "
        << name_of(spec.parallel) << ", rank " << rank;
  }
}

TEST_P(FamilyStepsTest, EveryModeAndPrecisionHoldsThePredictedBytes) {
  for (const Mode mode : kAll<Mode>) {
    for (const char* precision : {"fp32", "bf16", "fp16", "bf16-pure", "fp16-pure"}) {
      RunSpec run = spec(mode, precision);
      expect_predicted(run);
      run.attention = AttentionForm::kFlash;
      run.executor = ExecutorKind::kCompiled;
      expect_predicted(run);
    }
  }
  RunSpec primitive = spec(Mode::kStep, "fp32");
  primitive.ops = Granularity::kPrimitive;
  expect_predicted(primitive);
}

TEST_P(FamilyStepsTest, WithRecomputationToo) {
  for (const char* choice : {"blocks", "nested", "layers.*.attn"}) {
    for (const char* precision : {"fp32", "bf16"}) {
      RunSpec run = spec(Mode::kStep, precision);
      run.recompute = parse_recomputation("recompute", choice);
      expect_predicted(run);
    }
  }
}

TEST_P(FamilyStepsTest, AndOnEachOfTwoRanks) {
  for (const char* parallel : {"dp=2", "dp=2,shard=1", "dp=2,shard=3"}) {
    RunSpec run = spec(Mode::kStep, "fp32");
    run.parallel = parse_parallel("parallel", parallel);
    expect_predicted(run);
  }
}

INSTANTIATE_TEST_SUITE_P(Families, FamilyStepsTest, ::testing::ValuesIn(testing::family_models()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace tracestep
