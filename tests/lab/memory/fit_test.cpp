// What fits: the largest sizes against the sizes after them, and commands that mean their step.
#include "lab/memory/fit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "exec/executor.h"
#include "lab/memory/advice.h"
#include "ops/functions.h"
#include "spec/run_grid.h"

namespace tracestep {
namespace {

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

const Json& cell(const Table& table, std::size_t row, std::string_view column) {
  for (std::size_t i = 0; i < table.columns.size(); ++i) {
    if (table.columns[i].name == column) return table.rows.at(row)[i];
  }
  throw std::out_of_range(std::string(column));
}

// The run that the flags of a command mean.
RunSpec run_of(const std::string& command) {
  RunGrid grid;
  std::istringstream words(command);
  std::string word, value;
  words >> word >> word;  // tracestep bench
  while (words >> word >> value) {
    std::erase(value, '\'');  // a shell's
    for (const RunField& field : run_fields()) {
      if (field.flag == word) grid.give(field, word, {value});
    }
  }
  return grid.run();
}

TEST_F(FitTest, TheLargestFitsAndTheNextDoesNot) {
  const std::int64_t limit = peak_of(step()) * 2;
  for (Growth growth : kAllGrowths) {
    const Table table = largest_table(step(), {}, limit, growth);
    ASSERT_EQ(table.rows.size(), 5u);
    std::int64_t before = 0;
    for (std::size_t i = 0; i < table.rows.size(); ++i) {
      const std::string command = cell(table, i, "command").as_string();
      RunSpec found = run_of(command);
      const std::int64_t size = cell(table, i, name_of(growth)).as_int();
      EXPECT_EQ(growth == Growth::kBatch ? found.shape.batch : found.shape.context, size);
      EXPECT_EQ(peak_of(found), cell(table, i, "peak_bytes").as_int()) << command;
      EXPECT_LE(peak_of(found), limit) << command;
      (growth == Growth::kBatch ? found.shape.batch : found.shape.context) +=
          growth == Growth::kBatch ? 1 : 64;
      if (found.recompute == Recomputation()) {
        EXPECT_GT(peak_of(found), limit) << command;
      } else {
        EXPECT_THROW(peak_of(found), Error) << command;
      }
      if (i == 0) before = size;
      EXPECT_GE(size, before) << command;
    }
    EXPECT_GT(cell(table, 2, name_of(growth)).as_int(), before);  // recomputation
  }
}

// A search without an end finds sizes that no command takes.
TEST_F(FitTest, TheLargestIsOneThatCommandsTakeAndMoreIsSaid) {
  RunSpec small = step();
  small.mode = Mode::kInference;
  small.attention = AttentionForm::kFlash;
  small.model.layers = 1;
  for (Growth growth : kAllGrowths) {
    const RunField& field = field_named(name_of(growth));
    const Table table = largest_table(small, {}, std::int64_t{1} << 60, growth);
    const std::int64_t size = cell(table, 0, name_of(growth)).as_int();
    EXPECT_NO_THROW(field.parse("", std::to_string(size)));
    EXPECT_THROW(field.parse("", std::to_string(size + 1)), Error);
    ASSERT_EQ(table.notes.size(), 1u);
    EXPECT_NE(table.notes[0].find(fmt::format("more than {} would fit", size)), std::string::npos);
  }
  EXPECT_TRUE(largest_table(step(), {}, peak_of(step()), Growth::kBatch).notes.empty());
}

TEST_F(FitTest, WhereNothingFitsTheCellsAreEmpty) {
  const Table table = largest_table(step(), {}, 1000, Growth::kBatch);
  for (std::size_t i = 0; i < table.rows.size(); ++i) {
    EXPECT_TRUE(cell(table, i, "batch").is_null());
    EXPECT_TRUE(cell(table, i, "command").is_null());
  }
}

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
  const Table none = largest_table(step(), {}, 1000, Growth::kBatch, &times);
  EXPECT_TRUE(cell(none, 0, "predicted_ms").is_null());  // nothing fits
}

TEST_F(FitTest, WhereLargerMayFitTheTableSaysSo) {
  RunSpec asked = step();
  for (const std::int64_t chunks : {1, 0}) {
    asked.loss_chunks = chunks;
    const Table table = largest_table(asked, {}, 1 << 20, Growth::kBatch, nullptr);
    const bool says = std::ranges::any_of(table.notes, [](const std::string& note) {
      return note.find("a larger one may fit") != note.npos;
    });
    EXPECT_EQ(says, chunks == 0);
  }
}

// The step's own budget is less than the limit, within which larger batches of whole blocks fit.
TEST_F(FitTest, ABudgetBelowTheLimitHasALargestBatch) {
  RunSpec asked = step();
  asked.shape.batch = 2;
  asked.recompute = parse_recomputation("test", "blocks");
  const std::int64_t budget = predict_memory(asked, {}).predicted_peak_bytes;
  asked.recompute = parse_recomputation("test", fmt::format("budget={}B", budget));
  const Table found = largest_table(asked, {}, 4 * budget, Growth::kBatch, nullptr);
  EXPECT_GE(cell(found, 0, "batch").as_int(), 2);
}

}  // namespace
}  // namespace tracestep
