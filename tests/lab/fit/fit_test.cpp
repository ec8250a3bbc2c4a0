// Tests the verdict on a step that should fit, and commands that mean their step.
#include "lab/fit/fit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "exec/executor.h"
#include "lab/fit/advice.h"
#include "lab/predict/published_times.h"
#include "ops/functions.h"
#include "spec/parse_words.h"
#include "spec/run_grid.h"
#include "support/command_runs.h"
#include "support/tables.h"

namespace tracestep {
namespace {

using testing::cell;
using testing::run_of;

class FitTest : public ::testing::Test {
 protected:
  void SetUp() override { ops::register_all(); }

  static RunSpec step() {
    return {.model = {.vocab = 50, .d_model = 32, .d_ff = 64, .layers = 3, .heads = 2},
            .shape = {.batch = 2, .context = 64}};
  }
  static std::int64_t peak_of(const RunSpec& spec) {
    return predicted_peak_bytes(spec.executor, step_program(spec), {});
  }
};

TEST_F(FitTest, ACommandMeansItsStep) {
  RunSpec spec = step();
  spec.mode = Mode::kForwardBackward;
  spec.precision = parse_precision("test", "bf16");
  spec.attention = AttentionForm::kFlash;
  spec.recompute = parse_recomputation("test", "budget=3MiB");
  EXPECT_EQ(key_of(run_of(command_of(spec))), key_of(spec));
  spec.recompute = parse_recomputation("test", "layers.*.ffn");
  EXPECT_NE(command_of(spec).find("--recompute 'layers.*.ffn'"), std::string::npos);
  RunSpec small{.model = preset("small"), .shape = {.batch = 3, .context = 77}};
  EXPECT_EQ(command_of(small), "tracestep bench --size small --context 77 --batch 3 --mode step");
  small.place.threads = 5;  // a CPU's peak depends on them
  EXPECT_THAT(command_of(small), ::testing::HasSubstr(" --threads 5"));
  small.place.device = "cuda:1";
  EXPECT_THAT(command_of(small), ::testing::Not(::testing::HasSubstr("--threads")));
}

TEST_F(FitTest, TheVerdictTurnsAtTheMarginAndAtThePeak) {
  const MemoryCell asked{.run = predict_memory(step(), {})};
  const std::int64_t peak = asked.run.predicted_peak_bytes;
  const auto fit_within = [&](std::int64_t limit, double margin) {
    return fit_table(asked, {.step = step(), .traits = {}, .limit_bytes = limit, .margin = margin});
  };
  const Table fits = fit_within(peak, 0), tight = fit_within(peak, 0.01),
              not_quite = fit_within(peak - 1, 0);
  EXPECT_EQ(cell(fits, 0, "status").as_string(), "ok");
  EXPECT_EQ(cell(fits, 0, "spare_bytes").as_int(), 0);
  EXPECT_TRUE(cell(fits, 0, "missing_bytes").is_null());
  EXPECT_EQ(cell(tight, 0, "status").as_string(), "tight");
  EXPECT_EQ(cell(not_quite, 0, "status").as_string(), "oom");
  EXPECT_EQ(cell(not_quite, 0, "missing_bytes").as_int(), 1);
}

TEST_F(FitTest, WhatWouldFitHasItsTime) {
  const auto model = make_time_model(DevicePeaks{"a device", 10, 100, 1000});
  const Predictor times{*model};
  const MemoryCell asked{.run = predict_memory(step(), {})};
  const std::int64_t peak = asked.run.predicted_peak_bytes;
  FitQuestion question{.step = step(), .traits = {}, .limit_bytes = peak, .times = &times};
  const double ms = cell(fit_table(asked, question), 0, "predicted_ms").as_double();
  EXPECT_EQ(ms, predict_run(step(), {}, times).time.ms);
  const Table remedies = remedy_table(question, advise(question));
  ASSERT_FALSE(remedies.rows.empty());
  for (std::size_t i = 0; i < remedies.rows.size(); ++i) {
    const RunSpec remedy = run_of(cell(remedies, i, "command").as_string());
    EXPECT_EQ(cell(remedies, i, "predicted_ms").as_double(),
              predict_run(remedy, {}, times).time.ms);
    EXPECT_GT(cell(remedies, i, "tokens_per_s").as_double(), 0);
  }
}

}  // namespace
}  // namespace tracestep
