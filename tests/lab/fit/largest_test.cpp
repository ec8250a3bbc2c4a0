// The largest sizes that fit: against the sizes after them, and what their commands mean.
#include "lab/fit/largest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "exec/executor.h"
#include "lab/memory/run.h"
#include "lab/predict/published_times.h"
#include "ops/functions.h"
#include "spec/fields.h"
#include "spec/parse_words.h"
#include "spec/run_grid.h"
#include "spec/step_program.h"
#include "support/command_runs.h"
#include "support/tables.h"

namespace tracestep {
namespace {

using testing::cell;
using ::testing::HasSubstr;
using testing::run_of;

class LargestTest : public ::testing::Test {
 protected:
  void SetUp() override { ops::register_all(); }

  static RunSpec step(std::int64_t layers = 3) {
    return {.model = {.vocab = 50, .d_model = 32, .d_ff = 64, .layers = layers, .heads = 2},
            .shape = {.batch = 2, .context = 64}};
  }
  static std::int64_t peak_of(const RunSpec& spec, const DeviceTraits& traits = {}) {
    return predicted_peak_bytes(spec.executor, step_program(spec, traits), traits);
  }
  static FitQuestion within(const RunSpec& step, std::int64_t limit) {
    return {.step = step, .traits = {}, .limit_bytes = limit, .margin = 0};
  }
};

std::int64_t& size_in(RunSpec& step, Growth growth) {
  return growth == Growth::kBatch ? step.shape.batch : step.shape.context;
}

// Each row by its own whole program: it fits, and the next size does not.
void check_rows(const Table& table, Growth growth, const DeviceTraits& traits, std::int64_t limit) {
  std::int64_t before = 0;
  for (std::size_t i = 0; i < table.rows.size(); ++i) {
    const std::string command = cell(table, i, "command").as_string();
    RunSpec found = run_of(command);
    const auto peak = [&] {
      return predicted_peak_bytes(found.executor, step_program(found, traits), traits);
    };
    const std::int64_t size = cell(table, i, name_of(growth)).as_int();
    EXPECT_EQ(size_in(found, growth), size);
    EXPECT_EQ(peak(), cell(table, i, "peak_bytes").as_int()) << command;
    EXPECT_LE(peak(), limit) << command;
    size_in(found, growth) += growth == Growth::kBatch ? found.parallel.replicas() : 64;
    EXPECT_GT(peak(), limit) << command;
    EXPECT_GE(10 * size, 11 * before) << command;
    before = size;
  }
}

class MoreLargestTest : public LargestTest {};

// Shallow models by their programs, deep ones by sketches of few layers.
TEST_F(MoreLargestTest, TheLargestFitsAndTheNextDoesNot) {
  constexpr std::pair<std::int64_t, ExecutorKind> kSteps[] = {{1, ExecutorKind::kEager},
                                                              {3, ExecutorKind::kCompiled},
                                                              {12, ExecutorKind::kEager},
                                                              {12, ExecutorKind::kCompiled}};
  for (const auto& [layers, executor] : kSteps) {
    for (const Growth growth : kAll<Growth>) {
      RunSpec asked = step(layers);
      asked.executor = executor;
      const std::int64_t limit = peak_of(asked) * 3;
      const Table table = largest_table(within(asked, limit), growth);
      ASSERT_GE(table.rows.size(), 3u);
      EXPECT_EQ(cell(table, 0, "change").as_string(), "as asked for");
      check_rows(table, growth, {}, limit);
    }
  }
}

TEST_F(LargestTest, TheMarginIsLeftFree) {
  FitQuestion question = within(step(), peak_of(step()) * 3);
  question.margin = 0.2;
  const Table table = largest_table(question, Growth::kBatch);
  check_rows(table, Growth::kBatch, {}, question.within_bytes());
  EXPECT_THAT(table.title, HasSubstr("20 % less than"));
}

TEST_F(LargestTest, ABatchIsOneThatReplicasShare) {
  RunSpec asked = step();
  asked.shape.batch = 4;
  asked.place.device = "cuda";
  asked.parallel = parse_parallel("test", "dp=4");
  const DeviceTraits traits{.kind = DeviceKind::kCuda};
  const std::int64_t limit = peak_of(asked, traits) * 2;
  FitQuestion question = within(asked, limit);
  question.traits = traits;
  const Table table = largest_table(question, Growth::kBatch);
  for (std::size_t i = 0; i < table.rows.size(); ++i) {
    EXPECT_EQ(cell(table, i, "batch").as_int() % 4, 0);
  }
  check_rows(table, Growth::kBatch, traits, limit);
}

// No flag of a row can be left out.
TEST_F(LargestTest, ARowHasTheChangesThatItsSizeNeeds) {
  const std::int64_t limit = peak_of(step(12)) * 3;
  const Table table = largest_table(within(step(12), limit), Growth::kBatch);
  for (std::size_t i = 1; i < table.rows.size(); ++i) {
    const std::string command = cell(table, i, "command").as_string();
    std::istringstream words(cell(table, i, "change").as_string());
    std::string flag, value;
    while (words >> flag >> value) {
      const std::string part = fmt::format(" {} {}", flag, value);
      std::string without = command;
      without.erase(without.find(part), part.size());
      EXPECT_GT(peak_of(run_of(without)), limit) << command << " without" << part;
    }
  }
}

// A search without an end finds sizes that no command takes.
TEST_F(LargestTest, TheLargestIsOneThatCommandsTakeAndMoreIsSaid) {
  RunSpec small = step(1);
  small.mode = Mode::kInference;
  small.attention = AttentionForm::kFlash;
  for (const Growth growth : kAll<Growth>) {
    const RunField& field = field_named(name_of(growth));
    const Table table = largest_table(within(small, std::int64_t{1} << 60), growth);
    const std::int64_t size = cell(table, 0, name_of(growth)).as_int();
    EXPECT_NO_THROW(field.parse("", std::to_string(size)));
    EXPECT_THROW(field.parse("", std::to_string(size + 1)), Error);
    ASSERT_EQ(table.notes.size(), 1u);
    EXPECT_THAT(table.notes[0], HasSubstr(fmt::format("more than {} would fit", size)));
  }
}

TEST_F(LargestTest, WhereNothingFitsTheCellsAreEmpty) {
  const auto model = make_time_model(DevicePeaks{"a device", 10, 100, 1000});
  const Predictor times{*model};
  FitQuestion question = within(step(), 1000);
  question.times = &times;
  const Table table = largest_table(question, Growth::kBatch);
  ASSERT_EQ(table.rows.size(), 1u);
  for (const char* column : {"batch", "peak_bytes", "predicted_ms", "tokens_per_s", "command"}) {
    EXPECT_TRUE(cell(table, 0, column).is_null()) << column;
  }
}

TEST_F(LargestTest, TimesAreThoseOfTheFoundSteps) {
  const auto model = make_time_model(DevicePeaks{"a device", 10, 100, 1000});
  const Predictor times{*model};
  FitQuestion question = within(step(), 3 * peak_of(step()));
  question.times = &times;
  const Table table = largest_table(question, Growth::kBatch);
  for (std::size_t i = 0; i < table.rows.size(); ++i) {
    const RunSpec found = run_of(cell(table, i, "command").as_string());
    EXPECT_EQ(cell(table, i, "predicted_ms").as_double(), predict_run(found, {}, times).time.ms);
  }
}

TEST_F(LargestTest, WhereLargerMayFitTheTableSaysSo) {
  RunSpec asked = step();
  asked.mode = Mode::kInference;  // whose loss no change computes in parts
  for (const std::int64_t chunks : {1, 0}) {
    asked.loss_chunks = chunks;
    const Table table = largest_table(within(asked, 1 << 20), Growth::kBatch);
    EXPECT_EQ(std::ranges::any_of(table.notes,
                                  [](const std::string& note) {
                                    return note.find("a larger one may fit") != note.npos;
                                  }),
              chunks == 0);
  }
}

// The step's own budget is less than the limit, within which larger batches of whole blocks fit.
TEST_F(LargestTest, ABudgetBelowTheLimitHasALargestBatch) {
  RunSpec asked = step();
  asked.recompute = parse_recomputation("test", "blocks");
  const std::int64_t budget = peak_of(asked);
  asked.recompute = parse_recomputation("test", fmt::format("budget={}B", budget));
  const Table found = largest_table(within(asked, 4 * budget), Growth::kBatch);
  EXPECT_GE(cell(found, 0, "batch").as_int(), 2);
  EXPECT_LE(cell(found, 0, "peak_bytes").as_int(), budget);
}

}  // namespace
}  // namespace tracestep
