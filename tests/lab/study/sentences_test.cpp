// Sentences that once said more than their rows: each is fed the rows that it outran.
#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lab/measure/validity.h"
#include "lab/report/columns.h"
#include "lab/study/answers.h"
#include "lab/study/claims.h"
#include "lab/study/study_run.h"
#include "lab/study/summary.h"

namespace tracestep {
namespace {

using testing::cell_of;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::small_study;

class SentencesTest : public ::testing::Test {
 protected:
  void set(const char* table, const Evidence::Where& where, const char* column, Json value) {
    cell_of(tables_, table, where, column) = std::move(value);
  }
  // As many samples as given, all of this time: exact.
  void set_samples(const char* mode, double ms, std::size_t count) {
    set("cells", {{"size", "small"}, {"mode", mode}, {"ops", "fused"}}, "samples_ms",
        Json::Array(count, Json(ms)));
  }
  Answer of(std::string_view id) {
    const auto found = std::ranges::find(questions(), id, &Question::id);
    EXPECT_NE(found, questions().end()) << id;
    return answer(*found, tables_);
  }
  std::string text_of(std::string_view id) { return of(id).text.words(); }

  std::vector<Table> tables_ = small_study().tables;
};

TEST_F(SentencesTest, EachPassHasItsOwnNumberOfSamples) {
  set_samples("forward", 80, 7);
  set_samples("forward-backward", 240, 5);
  set_samples("step", 280, 3);
  const std::string text = text_of("pass-times");
  for (const char* part : {"forward 0.0 % (7 samples)", "with backward 0.0 % (5 samples)",
                           "whole step 0.0 % (3 samples)"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
}

TEST_F(SentencesTest, ASpreadIsCalledTheDistanceFromTheShortestToTheLongest) {
  set("cells", {{"size", "small"}, {"mode", "forward"}, {"ops", "fused"}}, "samples_ms",
      Json::Array{70.0, 80.0, 90.0});  // 25 % of the median, which ±12.5 % would cover
  EXPECT_THAT(text_of("pass-times"), HasSubstr("The range of the samples, in percent of their "
                                               "median: forward 25.0 % (3 samples)"));
}

TEST_F(SentencesTest, OneContextSaysNothingOfProportion) {
  for (Table& table : tables_) {
    if (table.name == "memory_grid") {
      const auto context =
          std::ranges::find(table.columns, "context", &Column::name) - table.columns.begin();
      std::erase_if(table.rows, [&](const auto& row) {
        return row[static_cast<std::size_t>(context)] != Json(64);
      });
    }
  }
  EXPECT_THAT(text_of("residual"), HasSubstr("at context 64"));
  EXPECT_THAT(text_of("residual"), Not(HasSubstr("proportion")));
}

TEST_F(SentencesTest, ProductsAreSaidToTripleOnlyWhereTheyDo) {
  const auto products = [&](double inference, double step) {
    for (const auto& [mode, ms] : {std::pair{"inference", inference}, {"step", step}}) {
      set("passes", {{"mode", mode}, {"pass", "all"}}, "products_ms", ms);
      set("passes", {{"mode", mode}, {"pass", "all"}}, "ms", ms + 10.0);
    }
    return text_of("product-share");
  };
  EXPECT_THAT(products(10, 30), HasSubstr("about three times, as backward has two"));
  EXPECT_THAT(products(10, 13.9), HasSubstr("that is below three times"));
  EXPECT_THAT(products(10, 33), Not(HasSubstr("as backward has two")));  // within noise of 3.5
}

TEST_F(SentencesTest, AShareRisesOrFallsOnlyBeyondNoise) {
  for (const auto& [mode, others] : {std::pair{"inference", 10.0}, {"step", 31.0}}) {
    const double products = mode == std::string("step") ? 30.0 : 10.0;
    set("passes", {{"mode", mode}, {"pass", "all"}}, "products_ms", products);
    set("passes", {{"mode", mode}, {"pass", "all"}}, "ms", products + others);
  }
  EXPECT_THAT(text_of("product-share"), HasSubstr("not apart beyond noise"));
  EXPECT_THAT(text_of("product-share"), Not(HasSubstr("share falls")));
  set("passes", {{"mode", "step"}, {"pass", "all"}}, "ms", 90.0);
  EXPECT_THAT(text_of("product-share"), HasSubstr("share falls"));
}

TEST_F(SentencesTest, GrowthIsCalledFourfoldOnlyWhereItIs) {
  const auto growth = [&](double ms) {  // from 2 ms
    set("attention", {{"context", 128}, {"saved", "weights"}}, "forward_samples_ms",
        Json::Array(8, Json(ms)));
    return text_of("attention-times");
  };
  EXPECT_THAT(growth(8.0), HasSubstr("about four times"));
  EXPECT_THAT(growth(6.4), HasSubstr("less than T² work would take"));
  EXPECT_THAT(growth(10.0), HasSubstr("more than the four times"));
}

TEST_F(SentencesTest, Float32ComesFirstInEveryComparisonOfPrecisions) {
  const std::string text = text_of("lower-precision");
  for (const char* part : {"float32 takes", "The peak is ", " in float32 and "}) {
    const std::size_t at = text.find(part);
    ASSERT_NE(at, std::string::npos) << text;
    EXPECT_LT(at, text.find("bfloat16", at)) << text;
  }
  EXPECT_LT(text.find(" in float32 and "), text.find("under autocast")) << text;
}

TEST_F(SentencesTest, KernelsThatTakeLongerThanTheWallAgreeWithNothing) {
  set("clocks", {{"mode", "step"}}, "busy_ms", 10.4);  // of 10 ms
  EXPECT_THAT(text_of("clocks"), HasSubstr("Kernels would be 104.0 % of the wall"));
  EXPECT_THAT(text_of("clocks"), Not(HasSubstr("agree")));
}

TEST_F(SentencesTest, KernelsThatTakeLongerThanTheSpanLeaveNoGaps) {
  EXPECT_THAT(text_of("clocks"), HasSubstr("That leaves 900.0 µs between them"));
  set("clocks", {{"mode", "step"}}, "gaps_ms", Json());
  EXPECT_FALSE(of("clocks").refused);
  EXPECT_THAT(text_of("clocks"), Not(HasSubstr("That leaves")));
}

TEST_F(SentencesTest, GapsBeyondThoseOfRecordedStepsAreADifferenceBetweenSteps) {
  set("clocks", {{"mode", "step"}}, "recorded_gaps_ms", 0.1);
  EXPECT_THAT(text_of("clocks"), Not(HasSubstr("That leaves")));
  EXPECT_THAT(text_of("clocks"), HasSubstr("Between those kernels are 100.0 µs; the other 800.0 µs "
                                           "of the span are a difference"));
}

TEST_F(SentencesTest, WhatRecordedStepsDoNotHaveBetweenKernelsIsNoGap) {
  const auto matrix = std::ranges::find_if(
      tables_, [](const Table& table) { return table.name.starts_with("matrix@"); });
  ASSERT_NE(matrix, tables_.end());
  const auto at = [&](std::string_view name) {
    return static_cast<std::size_t>(std::ranges::find(matrix->columns, name, &Column::name) -
                                    matrix->columns.begin());
  };
  double kernels = 0;
  for (auto& row : matrix->rows) {
    const std::string component = row[0].as_string();
    if (component != "gaps" && component != "total") kernels += row[at("ms")].as_double();
  }
  for (auto& row : matrix->rows) {
    if (row[0].as_string() != "gaps") continue;
    row[at("ms")] = kernels;
    row[at("recorded_ms")] = 0.01 * kernels;
  }
  matrix->rows.back()[at("ms")] = 2 * kernels;
  EXPECT_THAT(text_of("components"), HasSubstr("what is left 50.0 %"));
  EXPECT_THAT(text_of("components"), HasSubstr("What is left is more than the"));
  EXPECT_THAT(text_of("components"), Not(HasSubstr("gaps")));
}

TEST_F(SentencesTest, ComponentsAreSharesOfTheKernelsWhereThoseAreLongerThanTheSpan) {
  const auto matrix = std::ranges::find_if(
      tables_, [](const Table& table) { return table.name.starts_with("matrix@"); });
  ASSERT_NE(matrix, tables_.end());
  const auto ms = static_cast<std::size_t>(std::ranges::find(matrix->columns, "ms", &Column::name) -
                                           matrix->columns.begin());
  double kernels = 0;
  for (auto& row : matrix->rows) {
    const std::string component = row[0].as_string();
    if (component == "gaps") row[ms] = Json();
    if (component != "gaps" && component != "total") kernels += row[ms].as_double();
  }
  matrix->rows.back()[ms] = kernels / 1.03;
  EXPECT_THAT(text_of("components"), HasSubstr("These are shares of the recorded kernels"));
  matrix->rows.back()[ms] = kernels;
  EXPECT_THAT(text_of("components"), HasSubstr("add up to the step's"));
}

TEST_F(SentencesTest, GrowthIsSaidFromEachSizeToTheNext) {
  EXPECT_THAT(text_of("sizes"), Not(HasSubstr(" a pass has ")));
  const auto cells = std::ranges::find(tables_, "cells", &Table::name);
  const auto at = [&](std::string_view name) {
    return static_cast<std::size_t>(std::ranges::find(cells->columns, name, &Column::name) -
                                    cells->columns.begin());
  };
  const auto small = std::ranges::find_if(cells->rows, [&](const auto& row) {
    return row[at("size")] == Json("small") && row[at("mode")] == Json("forward") &&
           row[at("ops")] == Json("fused");
  });
  ASSERT_NE(small, cells->rows.end());
  std::vector<Json> between = *small;
  between[at("size")] = "between";
  between[at("flops")] = small->at(at("flops")).as_int() / 2;
  between[at("samples_ms")] = Json::Array(8, Json(40.0));  // small: 80 ms
  cells->rows.insert(cells->rows.begin(), between);
  const Answer answer = of("sizes");
  EXPECT_THAT(answer.text.words(),
              HasSubstr("From between to small a pass has 2.0 times the FLOPs in 2.0 times"));
  EXPECT_THAT(testing::wrong_claims(answer.text, tables_), ::testing::IsEmpty());
}

TEST_F(SentencesTest, TheLossAtTheEndIsOfSeveralBatches) {
  const auto training = std::ranges::find(tables_, "training", &Table::name);
  ASSERT_GE(training->rows.size(), 4u);
  for (auto& row : training->rows) row[1] = 4.0;
  training->rows.back()[1] = 2.0;
  EXPECT_THAT(text_of("training"), HasSubstr("3.600 in those at the end"));
  EXPECT_THAT(text_of("training"), HasSubstr("4.000 in the first batch"));
}

TEST_F(SentencesTest, AnOptimizerThatNoiseHidesIsTakenFromTheProfileOfTheSameCell) {
  set_samples("step", 240, 8);
  set("cells", {{"size", "small"}, {"mode", "step"}, {"ops", "fused"}}, "samples_ms",
      Json::Array{230.0, 240.0, 250.0});
  EXPECT_THAT(text_of("pass-times"), HasSubstr("AdamW's part cannot be told"));
  EXPECT_THAT(text_of("pass-times"), Not(HasSubstr("In the profile")));  // of primitive ops
  set("passes", {{"mode", "step"}, {"pass", "optimizer"}}, "ms", 59.9);
  set("passes", {{"mode", "step"}, {"pass", "optimizer"}}, "ops", "fused");
  EXPECT_THAT(text_of("pass-times"),
              HasSubstr("In the profile of that cell its kernels take 59.9"));
}

TEST_F(SentencesTest, AWholeStepThatIsShorterThanItsPartIsNoAnswer) {
  set_samples("step", 100, 8);
  EXPECT_TRUE(of("pass-times").refused);
  EXPECT_THAT(text_of("pass-times"), HasSubstr("which cannot be"));
}

TEST_F(SentencesTest, PublishedTimesAgreeOnlyWhereTheyWereHeldAgainstOurs) {
  EXPECT_THAT(text_of("published"), HasSubstr("None of the published times has its cell"));
  EXPECT_THAT(text_of("published"), Not(HasSubstr("pace")));
  cell_of(tables_, "published", {}, "ours") = 23;
  EXPECT_THAT(text_of("published"), HasSubstr("23 published times have a time of this run"));
  EXPECT_THAT(text_of("published"), Not(HasSubstr("None of the published times")));
  cell_of(tables_, "published", {}, "compared") = 5;
  EXPECT_THAT(text_of("published"), HasSubstr("5 of "));
  EXPECT_THAT(text_of("published"), HasSubstr("none agrees"));
  cell_of(tables_, "published", {}, "agree") = 3;
  EXPECT_THAT(text_of("published"), HasSubstr("3 agree"));
}

TEST_F(SentencesTest, ACardIsWorthWhatItsWorstRowIs) {
  const Evidence::Where step = {{"size", "small"}, {"mode", "step"}, {"ops", "fused"}};
  EXPECT_EQ(of("pass-times").standing, Standing::kSound);
  set_samples("step", 280, 1);
  EXPECT_EQ(of("pass-times").standing, Standing::kSingle);
  set("cells", step, "verdict", "doubt: unsteady");
  EXPECT_EQ(of("pass-times").standing, Standing::kDoubtful);
  set("cells", {{"size", "small"}, {"mode", "forward"}, {"ops", "fused"}}, "verdict",
      "invalid: two_graphs");
  EXPECT_EQ(of("pass-times").standing, Standing::kInvalid);
  EXPECT_EQ(of("fused").standing, Standing::kDoubtful);  // rests on the steps alone
  EXPECT_EQ(of("formats").standing, Standing::kSound);
}

TEST_F(SentencesTest, TheFirstScreenMarksWhatRestsOnDoubtfulRows) {
  const auto first_screen = [&] {
    StudyReport report = small_study();
    report.summary = answer_all(summary_questions(), tables_);
    std::string sentences;
    for (const Text& sentence : page_head(report, Json::object()).results) {
      sentences += sentence.words();
    }
    const std::string page = study_page(report, Json::object(), Format::kMarkdown);
    EXPECT_EQ(page.substr(0, page.find("## Questions")).find("(doubtful)") != std::string::npos,
              sentences.find("(doubtful)") != std::string::npos);
    return sentences;
  };
  EXPECT_THAT(first_screen(), Not(HasSubstr("(doubtful)")));
  set("cells", {{"size", "small"}, {"mode", "step"}, {"ops", "fused"}}, "verdict",
      "doubt: unsteady");
  EXPECT_THAT(first_screen(), HasSubstr("(doubtful)"));
}

TEST_F(SentencesTest, ARowThatWasInterruptedSaysSo) {
  Table table{.name = "t", .columns = {{.name = "status"}}};
  table.add_row({"interrupted"});
  table.add_row({"ok"});
  const std::vector<Table> tables{table};
  const RowRef first[] = {{"t", 0, {"status"}}}, second[] = {{"t", 1, {"status"}}};
  EXPECT_EQ(standing_of(tables, first), Standing::kInterrupted);
  EXPECT_EQ(standing_of(tables, second), Standing::kSound);
}

// A verdict on a time is none on the bytes beside it.
TEST_F(SentencesTest, ADoubtOfATimeIsNoDoubtOfBytes) {
  Table table{.name = "t",
              .columns = {bytes_column("peak_bytes"), int_column("launches"),
                          real_column("median_ms", "", "ms", 1), reals_column("samples_ms"),
                          timed(real_column("ratio", "", "x", 1)), verdict_column()}};
  const auto worth = [&](const char* verdict, const char* column) {
    table.rows.clear();
    table.add_row({1024, 7, 3.0, Json::Array{3.0, 3.1}, 1.5, verdict});
    const std::vector<Table> tables{table};
    const RowRef read[] = {{"t", 0, {column}}};
    return standing_of(tables, read);
  };
  for (const char* exact : {"peak_bytes", "launches"}) {
    EXPECT_EQ(worth("doubt: unsteady", exact), Standing::kSound) << exact;
    EXPECT_EQ(worth("invalid: part_over_whole", exact), Standing::kSound) << exact;
    EXPECT_EQ(worth("invalid: swapped_label, unsteady", exact), Standing::kInvalid) << exact;
  }
  for (const char* time : {"median_ms", "samples_ms", "ratio"}) {
    EXPECT_EQ(worth("ok", time), Standing::kSound) << time;
    EXPECT_EQ(worth("doubt: unsteady", time), Standing::kDoubtful) << time;
    EXPECT_EQ(worth("invalid: part_over_whole", time), Standing::kInvalid) << time;
  }
}

TEST_F(SentencesTest, ATimeThatNobodyJudgedIsNotSound) {
  Table times{.name = "times", .columns = {real_column("us", "", "µs", 1), int_column("kernels")}};
  times.add_row({3.5, 2});
  Table judged{.name = "judged", .columns = {verdict_column()}};
  judged.add_row({"doubt: recorded_unsteady"});
  const std::vector<Table> tables{times, judged};
  const RowRef time{"times", 0, {"us"}}, count{"times", 0, {"kernels"}},
      verdict{"judged", 0, {"verdict"}};
  EXPECT_EQ(standing_of(tables, std::vector{time}), Standing::kNotJudged);
  EXPECT_EQ(standing_of(tables, std::vector{count}), Standing::kSound);
  EXPECT_EQ(standing_of(tables, std::vector{count, verdict}), Standing::kSound);
  EXPECT_EQ(standing_of(tables, std::vector{time, verdict}), Standing::kDoubtful);
  EXPECT_EQ(of("warm-up").standing, Standing::kNotJudged);
  EXPECT_EQ(of("compiled-start").standing, Standing::kSingle);
}

TEST_F(SentencesTest, BytesOfAttentionAndLaunchesAreExactWhateverItsTimesAre) {
  for (Table& table : tables_) {
    for (std::size_t i = 0; i < table.columns.size(); ++i) {
      if (!is_verdict_column(table.columns[i])) continue;
      for (auto& row : table.rows) row[i] = "doubt: unsteady";
    }
  }
  for (const char* exact :
       {"attention-bytes", "attention-limit", "launches", "compiled-memory", "peaks"}) {
    EXPECT_EQ(of(exact).standing, Standing::kSound) << exact;
  }
  EXPECT_EQ(of("saved-operations").standing, Standing::kNotJudged);  // says what it costs in time
  for (const char* timed : {"attention-times", "compiled", "ladder", "fused", "contexts"}) {
    EXPECT_EQ(of(timed).standing, Standing::kDoubtful) << timed;
  }
}

TEST_F(SentencesTest, WhatComputingAgainCostsIsCountedAndTimedWhereTimesAre) {
  const auto counted = [](const std::string& text) {
    return text.substr(text.find("Cheapest to compute again (of operations"));
  };
  const std::string before = text_of("saved-operations");
  EXPECT_THAT(before, HasSubstr("Cheapest to compute again, by time, is "));
  EXPECT_THAT(before, HasSubstr(" to compute again)"));
  for (Table& table : tables_) {
    if (!table.name.starts_with("saved_by_op")) continue;
    for (const char* time : {"recompute_us", "bytes_per_us"}) {
      const auto column = std::ranges::find(table.columns, time, &Column::name);
      for (auto& row : table.rows) {
        row[static_cast<std::size_t>(column - table.columns.begin())] = Json();
      }
    }
  }
  const std::string after = text_of("saved-operations");
  EXPECT_EQ(counted(after), counted(before));
  EXPECT_THAT(after, Not(HasSubstr("by time,")));
}

TEST_F(SentencesTest, FlashSaysHowMuchItComputesAndWhatTheWholeTakes) {
  const std::string text = text_of("attention-cure");
  EXPECT_THAT(text, HasSubstr("% of the FLOPs"));
  EXPECT_THAT(text, HasSubstr("leaves out tiles"));
  EXPECT_THAT(text, HasSubstr("without a stop between them"));
  const auto attention = std::ranges::find(tables_, "attention", &Table::name);
  const auto flops = std::ranges::find(attention->columns, "forward_flops", &Column::name);
  for (auto& row : attention->rows) {
    row[static_cast<std::size_t>(flops - attention->columns.begin())] = 1000;
  }
  EXPECT_THAT(text_of("attention-cure"), Not(HasSubstr("leaves out tiles")));
}

TEST_F(SentencesTest, ARungThatChangesNothingGainsNothing) {
  // Every rung is a little faster than the one below it, beyond chance; `fuse` finds nothing to do.
  const auto set_rung = [&](const std::string& rung, double speedup, const char* verdict,
                            const char* changes) {
    set("ladder", {{"rung", rung}}, "rung_speedup", speedup);
    set("ladder", {{"rung", rung}}, "rung_verdict", verdict);
    set("ladder", {{"rung", rung}}, "changes", changes);
  };
  const auto ladder = std::ranges::find(tables_, "ladder", &Table::name);
  for (std::size_t row = 1; row < ladder->rows.size(); ++row) {
    set_rung(ladder->rows[row][0].as_string(), 1.05, "faster", "program");
  }
  set_rung("swiglu", 2.81, "faster", "program");
  set_rung("fuse", 1.0, "unclear", "nothing");
  EXPECT_THAT(text_of("ladder"), HasSubstr("most comes from swiglu, 2.81 times"));
  set_rung("fuse", 1.38, "faster", "nothing");
  EXPECT_THAT(text_of("ladder"), HasSubstr("fuse changes nothing, and yet"));
  EXPECT_THAT(text_of("ladder"), Not(HasSubstr("swiglu")));
}

TEST_F(SentencesTest, CompiledIsFasterWhereItsRowSaysSo) {
  // Medians whose intervals meet, though nearly every pair of samples has the same order.
  const Json steps = Json::Array{13.1, 13.2, 13.3, 13.4, 13.4, 14.0, 17.0, 21.1},
             longer = Json::Array{19.6, 20.0, 22.0, 24.0, 24.3, 28.0, 30.0, 36.0};
  for (Table& table : tables_) {
    if (table.name != "ways") continue;
    for (std::size_t row = 0; row < table.rows.size(); ++row) {
      const auto at = [&](std::string_view name) -> Json& {
        const auto column = std::ranges::find(table.columns, name, &Column::name);
        return table.rows[row][static_cast<std::size_t>(column - table.columns.begin())];
      };
      if (at("mode") != Json("forward") || at("executor") != Json("compiled")) {
        if (at("ops") == Json("primitive")) at("samples_ms") = longer;
        continue;
      }
      at("samples_ms") = steps;
      at("base_speedup") = 1.802;
      at("base_low") = 1.284;
      at("base_high") = 2.102;
      at("base_verdict") = "faster";
    }
  }
  const Answer faster = of("compiled");
  EXPECT_THAT(faster.text.words(), HasSubstr("Compiled is 1.80 times as fast as plain ops"));
  EXPECT_THAT(testing::wrong_claims(faster.text, tables_), ::testing::IsEmpty());
}

TEST_F(SentencesTest, BytesThatArePrintedAlikeAreToldApartByTheirDifference) {
  const Evidence::Where compiled = {{"mode", "step"}, {"ops", "fused"}, {"executor", "compiled"}},
                        eager = {{"mode", "step"}, {"ops", "fused"}, {"executor", "eager"}};
  set("ways", compiled, "saved_bytes", 47761408);
  set("ways", eager, "saved_bytes", 47763456);
  set("ways", compiled, "peak_bytes", 102781192);
  set("ways", eager, "peak_bytes", 102682636);
  EXPECT_THAT(text_of("compiled-memory"), HasSubstr("2.00 KiB less than with composite kernels"));
  EXPECT_THAT(text_of("compiled-memory"), HasSubstr("the peak is 96.25 KiB more than with"));
  set("ways", compiled, "saved_bytes", 47763456);
  EXPECT_THAT(text_of("compiled-memory"), HasSubstr("45.55 MiB is kept, as much as with"));
}

TEST_F(SentencesTest, BytesSetTheTimeOfSoftmaxOnlyNearTheirRoof) {
  const auto attention = std::ranges::find_if(
      tables_, [](const Table& table) { return table.name.starts_with("attention@"); });
  ASSERT_NE(attention, tables_.end());
  const auto with_roof = [&](double percent) {
    for (const auto& [column, value] :
         {std::pair<const char*, Json>{"bound", "bytes"}, {"roof_percent", percent}}) {
      set(attention->name.c_str(), {{"phase", "forward"}, {"part", "softmax, with scale and mask"}},
          column, value);
    }
    return text_of("softmax");
  };
  EXPECT_THAT(with_roof(20.1), HasSubstr("20.1 % of its time, below 60.0 %: they do not set it"));
  EXPECT_THAT(with_roof(80.0), HasSubstr("80.0 % of its time: they set it"));
  EXPECT_THAT(with_roof(100.7),
              HasSubstr("100.7 % of its time from memory, above 100.0 %: caches"));
}

TEST_F(SentencesTest, AFirstStepHasACauseWhenEveryProcessShowsIt) {
  EXPECT_THAT(text_of("warm-up"), HasSubstr("Each is longer: a first step also pays"));
  set("warmup", {{"warmup", 2}}, "start_ms", 10.0);
  EXPECT_THAT(text_of("warm-up"), HasSubstr("10.00 ms"));
  EXPECT_THAT(text_of("warm-up"), Not(HasSubstr("also pays")));
}

TEST_F(SentencesTest, MoreTokensInLessTimeSayNothingOfGrowth) {
  const auto set_step = [&](int context, double ms) {
    set("scaling", {{"mode", "step"}, {"context", context}}, "samples_ms",
        Json::Array(8, Json(ms)));
  };
  set_step(4, 57.6);
  set_step(8, 43.2);
  set_step(16, 288.5);
  EXPECT_TRUE(of("contexts").refused);
  EXPECT_THAT(text_of("contexts"), HasSubstr("shorter than one over 4 (57.60 ms)"));
  set_step(4, 40.0);
  EXPECT_THAT(text_of("contexts"), HasSubstr("the time of a step grows like"));
}

TEST_F(SentencesTest, WhyTimesGrowIsNotSaidOfDoubtfulOnes) {
  const auto set_all = [&](const char* verdict) {
    for (int context : {4, 8, 16}) {
      set("scaling", {{"mode", "step"}, {"context", context}}, "samples_ms",
          Json::Array(8, Json(10.0 + 0.01 * context)));
      set("scaling", {{"mode", "step"}, {"context", context}}, "verdict", verdict);
    }
  };
  set_all("ok");
  EXPECT_THAT(text_of("contexts"), HasSubstr("short contexts use the device less well"));
  set_all("doubt: recorded_apart");
  EXPECT_THAT(text_of("contexts"), HasSubstr("Time grows by less than the work. "));
}

TEST_F(SentencesTest, OnlyLaunchesThatAreExpectedAreChecked) {
  const auto count = [&] {
    const std::string text = text_of("launches");
    return std::stoi(text.substr(text.find_first_of("0123456789")));
  };
  const int before = count();
  set("launch_check", {{"what", "weight products, forward"}}, "expected", Json());
  EXPECT_EQ(count(), before - 1);
}

TEST_F(SentencesTest, CompiledStepsAreJudgedBesideAllOthers) {
  for (const char* table : {"time", "scaling", "steps", "ways", "ladder", "clocks"}) {
    EXPECT_NO_THROW(cell_of(tables_, "validity", {{"table", table}}, "verdict")) << table;
  }
}

// The clocks of a cell are judged by themselves and beside other tables, and the table of all
// verdicts says the worse of the two as well.
TEST_F(SentencesTest, ClocksAndValiditySayTheSameOfACell) {
  tables_ = testing::measured_study().tables;
  const Evidence evidence(tables_);
  for (const auto& clock : evidence.rows("clocks")) {
    const Json label(clock.text("label"));
    EXPECT_EQ(evidence.row("validity", {{"table", "clocks"}, {"cell", label}}).text("verdict"),
              clock.text("verdict"))
        << label.as_string();
  }
}

TEST_F(SentencesTest, ANoteIsNoDoubt) {
  const auto validity = std::ranges::find(tables_, "validity", &Table::name);
  for (auto& row : validity->rows) row[2] = "note: instrument_cost";
  ASSERT_EQ(validity->columns[2].name, "verdict");
  EXPECT_THAT(text_of("validity"), HasSubstr("Every time is what its label says."));
  const auto summary = std::ranges::find(summary_questions(), "trust-rows", &Question::id);
  EXPECT_THAT(answer(*summary, tables_).text.words(), HasSubstr("0 doubtful and 0 invalid"));
  EXPECT_THAT(answer(*summary, tables_).text.words(),
              HasSubstr(fmt::format("{} sound", validity->rows.size())));
}

TEST_F(SentencesTest, GradientsAreNotThereBeforeActivations) {
  const std::string text = text_of("static-bytes");
  EXPECT_THAT(text, HasSubstr("are 12 B each"));
  EXPECT_THAT(text, HasSubstr("16 B each"));
  EXPECT_THAT(text, HasSubstr("when backward ends"));
}

TEST_F(SentencesTest, ASmallProbabilityIsNotPrintedAsNone) {
  set("granularity", {{"size", "small"}, {"mode", "step"}}, "p", 0.0002);
  EXPECT_THAT(text_of("fused"), HasSubstr("p < 0.001"));
}

TEST_F(SentencesTest, WhatWasDoubtfulIsMeasuredAgainAndWhatIsLackingIsMeasured) {
  for (Table& table : tables_) {
    if (table.name != "passes" && table.name != "cells") continue;
    for (std::size_t i = 0; i < table.columns.size(); ++i) {
      for (auto& row : table.rows) {
        if (table.columns[i].name == "verdict") row[i] = "doubt: recorded_unsteady";
        if (table.name == "cells" && table.columns[i].name == "device") row[i] = "cuda";
      }
    }
  }
  const Answer doubtful = of("top-kernel");
  ASSERT_TRUE(doubtful.refused);
  EXPECT_THAT(doubtful.command, HasSubstr("--d-model"));  // the cell that was measured
  std::erase_if(tables_, [](const Table& table) { return table.name == "ladder"; });
  const Answer lacking = of("ladder");
  ASSERT_TRUE(lacking.refused);
  EXPECT_EQ(lacking.command, "tracestep compile --part ladder --device cuda");
}

TEST_F(SentencesTest, ANumberHasOneSign) {
  const auto text_with = [&](double percent) {
    set("memory_grid", {{"mode", "step"}, {"precision", "bf16"}, {"context", 256}},
        "versus_fp32_percent", percent);
    return text_of("low-precision-memory");
  };
  EXPECT_THAT(text_with(-0.0), HasSubstr("step 256 -0.0 %"));
  EXPECT_THAT(text_with(0.0), HasSubstr("step 256 +0.0 %"));
  EXPECT_THAT(text_with(-0.01), HasSubstr("step 256 -0.01 %"));  // not as if there were nothing
}

TEST_F(SentencesTest, NodesThatLaunchAreNotCalledLaunches) {
  EXPECT_THAT(text_of("ladder"), HasSubstr("Nodes that launch kernels go from "));
  for (const Table& table : tables_) {
    for (const Column& column : table.columns) {
      const bool is_counted = table.name == "passes" || table.name.find('@') != std::string::npos;
      if (column.name == "launches" && !is_counted) {
        EXPECT_EQ(column.title, "launching nodes") << table.name;
      }
    }
  }
}

TEST_F(SentencesTest, AKernelThatIsOneOfSeveralIsNotNamedAsAllOfThem) {
  const auto matrix = std::ranges::find_if(
      tables_, [](const Table& table) { return table.name.starts_with("matrix@"); });
  ASSERT_NE(matrix, tables_.end());
  const Evidence::Where forward = {{"op", "matmul"}, {"phase", "forward"}};
  set(matrix->name.c_str(), forward, "ms", 1000.0);
  set(matrix->name.c_str(), forward, "roof_percent", 50.0);
  EXPECT_THAT(text_of("bound"), HasSubstr("takes 1.00 s"));
  EXPECT_THAT(text_of("bound"), Not(HasSubstr("One of the")));
  const auto op = std::ranges::find(matrix->columns, "ms", &Column::name);
  const auto ms = static_cast<std::size_t>(op - matrix->columns.begin());
  const auto row = std::ranges::find_if(
      matrix->rows, [&](const auto& cells) { return cells[ms] == Json(1000.0); });
  std::vector<Json> second = *row;
  second[ms] = 900.0;
  matrix->rows.insert(matrix->rows.begin(), second);
  const Answer answer = of("bound");
  EXPECT_THAT(answer.text.words(), HasSubstr("One of the 2 kernels of matmul of "));
  EXPECT_THAT(testing::wrong_claims(answer.text, tables_), ::testing::IsEmpty());
}

TEST_F(SentencesTest, WhatIsSavedIsToldApartFromWhatThePeakHolds) {
  const auto question = std::ranges::find(summary_questions(), "result-memory", &Question::id);
  const Answer memory = answer(*question, tables_);
  EXPECT_THAT(memory.text.words(), Not(HasSubstr("of which")));
  EXPECT_THAT(memory.text.words(), HasSubstr("At the peak activations hold "));
  EXPECT_THAT(testing::wrong_claims(memory.text, tables_), ::testing::IsEmpty());
}

TEST_F(SentencesTest, TheShareOfProductsFallsByTheOptimizerOrByTheOthers) {
  const auto with_optimizer = [&](double optimizer) {
    for (const auto& [mode, products, all] :
         {std::tuple{"inference", 10.0, 20.0}, {"step", 30.0, 90.0}}) {
      set("passes", {{"mode", mode}, {"pass", "all"}}, "products_ms", products);
      set("passes", {{"mode", mode}, {"pass", "all"}}, "ms", all);
    }
    set("passes", {{"mode", "step"}, {"pass", "optimizer"}}, "ms", optimizer);
    set("passes", {{"mode", "step"}, {"pass", "optimizer"}}, "products_ms", 0.0);
    EXPECT_THAT(testing::wrong_claims(of("product-share").text, tables_), ::testing::IsEmpty());
    return text_of("product-share");
  };
  EXPECT_THAT(with_optimizer(1), HasSubstr("Without AdamW, too, the others grow more"));
  EXPECT_THAT(with_optimizer(30), HasSubstr("Without AdamW the two factors are not apart"));
  EXPECT_THAT(with_optimizer(45), HasSubstr("Without AdamW the others grow less"));
}

TEST_F(SentencesTest, SoundRowsSayWhatIsDoubtfulOfAttention) {
  const auto question = std::ranges::find(summary_questions(), "trust-rows", &Question::id);
  EXPECT_THAT(answer(*question, tables_).text.words(),
              HasSubstr("rows of attention alone 0 are doubtful and 0 invalid"));
  set("attention", {{"status", "ok"}}, "verdict", "doubt: throttled");
  const Answer trust = answer(*question, tables_);
  EXPECT_THAT(trust.text.words(), HasSubstr("rows of attention alone 1 are doubtful"));
  EXPECT_THAT(testing::wrong_claims(trust.text, tables_), ::testing::IsEmpty());
}

TEST_F(SentencesTest, LessMemoryThatWasMeasuredIsSetBesideMoreThatIsPredicted) {
  for (const char* mode : {"forward", "step"}) {
    for (int context : {64, 128, 256}) {
      set("memory_grid", {{"mode", mode}, {"precision", "bf16"}, {"context", context}},
          "versus_fp32_percent", 1.0);
    }
  }
  const auto steps = std::ranges::find(tables_, "steps", &Table::name);
  const auto at = [&](std::string_view name) {
    return static_cast<std::size_t>(std::ranges::find(steps->columns, name, &Column::name) -
                                    steps->columns.begin());
  };
  const auto with_peak = [&](std::int64_t bf16) {
    for (auto& row : steps->rows) {
      row[at("peak_bytes")] = row[at("precision")] == Json("bf16") ? bf16 : 1000;
    }
    EXPECT_THAT(testing::wrong_claims(of("low-precision-memory").text, tables_),
                ::testing::IsEmpty());
    return text_of("low-precision-memory");
  };
  EXPECT_THAT(with_peak(900), HasSubstr("There it takes less: what comes out depends"));
  EXPECT_THAT(with_peak(1100), Not(HasSubstr("There it takes less")));
}

TEST_F(SentencesTest, SensitiveStepsAreSaidWithTheirInputs) {
  const std::string text = text_of("norms");
  EXPECT_THAT(text, HasSubstr("sum of squares at inputs of 1000"));
  EXPECT_THAT(text, HasSubstr("lost to overflow or to zero, at inputs of 1000"));
  EXPECT_THAT(text, HasSubstr("numbers up to 255.875 are finite"));
}

TEST_F(SentencesTest, AnotherStartThatTakesMoreFindsNothing) {
  const Evidence::Where step = {{"mode", "step"}, {"ops", "fused"}, {"executor", "compiled"}};
  set("ways", step, "first_start_ms", 400.0);
  set("ways", step, "second_start_ms", 300.0);
  EXPECT_THAT(text_of("compiled-start"), HasSubstr("the other start finds those"));
  set("ways", step, "second_start_ms", 431.0);
  EXPECT_THAT(text_of("compiled-start"), HasSubstr("the other start takes more here"));
  EXPECT_THAT(text_of("compiled-start"), Not(HasSubstr("finds those")));
}

TEST_F(SentencesTest, AFormInPartsIsNotPaidForByWhatItSaves) {
  const auto attention = std::ranges::find(tables_, "attention", &Table::name);
  const auto at = [&](std::string_view name) {
    return static_cast<std::size_t>(std::ranges::find(attention->columns, name, &Column::name) -
                                    attention->columns.begin());
  };
  const auto with_nodes = [&](int nodes) {
    for (auto& row : attention->rows) {
      row[at("forward_launches")] = row[at("saved")] == Json("scores+exp+weights") ? nodes : 4;
      row[at("backward_launches")] = 4;
    }
    return text_of("attention-variants");
  };
  EXPECT_THAT(with_nodes(25), HasSubstr("in 29 launching nodes"));
  EXPECT_THAT(with_nodes(25), HasSubstr("its softmax runs in parts"));
  EXPECT_THAT(with_nodes(4), Not(HasSubstr("runs in parts")));
}

TEST_F(SentencesTest, ALimitStandsBetweenWhatFitsAndWhatDoesNot) {
  const auto predicted = std::ranges::find(tables_, "attention_predicted", &Table::name);
  ASSERT_NE(predicted, tables_.end());
  const auto at = [&](std::string_view name) {
    return static_cast<std::size_t>(std::ranges::find(predicted->columns, name, &Column::name) -
                                    predicted->columns.begin());
  };
  std::vector<Json> fits = predicted->rows.front(), beyond = fits;
  const auto set_row = [&](std::vector<Json>& row, int context, std::int64_t peak, bool is_within) {
    row[at("context")] = context;
    row[at("peak_bytes")] = peak;
    row[at("device_bytes")] = std::int64_t{2} << 20;
    row[at("fits")] = is_within;
  };
  set_row(fits, 4096, std::int64_t{1} << 20, true);
  set_row(beyond, 8192, std::int64_t{4} << 20, false);
  predicted->rows = {fits, beyond};
  const Answer limit = of("attention-limit");
  EXPECT_THAT(limit.text.words(), HasSubstr("needs 4.00 MiB at the peak, more than this device's"));
  EXPECT_THAT(limit.text.words(), HasSubstr("Context 4096 needs 1.00 MiB, less, and fits."));
  EXPECT_THAT(testing::wrong_claims(limit.text, tables_), ::testing::IsEmpty());
}

TEST_F(SentencesTest, PublishedFiguresThatAreNoTimesAreCounted) {
  set("published_verdicts", {}, "suspicious", 5);
  const std::string text = text_of("published");
  EXPECT_THAT(text, HasSubstr("Over all published tables"));
  EXPECT_THAT(testing::wrong_claims(of("published").text, tables_), ::testing::IsEmpty());
}

TEST_F(SentencesTest, ASumStopsAfterSomeOfItsAdditions) {
  set("accumulation", {{"experiment", "5: bf16 + bf16"}}, "count", 1000);
  EXPECT_THAT(text_of("stalls"), HasSubstr(" of 1000 additions of "));
}

TEST_F(SentencesTest, TimesOfDifferentVocabulariesSayTheirs) {
  set("cells", {{"size", "tiny"}, {"mode", "forward"}, {"ops", "fused"}}, "vocab", 256);
  EXPECT_THAT(text_of("pass-times"), HasSubstr("tiny at context 8, vocabulary 256: "));
  EXPECT_THAT(text_of("sizes"), HasSubstr("by layer, with embedding and head in it, "));
}

TEST_F(SentencesTest, AnswersNameTheModelThatTheyAreOf) {
  EXPECT_THAT(text_of("compiled-saved"), HasSubstr("tiny: backward of a norm"));
  EXPECT_THAT(text_of("ladder"), HasSubstr("A step of tiny takes "));
  EXPECT_THAT(text_of("ladder"), HasSubstr("gradients (of such a model with 1 layers)"));
  EXPECT_THAT(text_of("compiled-attention"), HasSubstr("The whole takes "));
  EXPECT_THAT(text_of("largest-buffers"), HasSubstr("named by the operation that wrote it first"));
  EXPECT_THAT(text_of("bound"), HasSubstr("named by the roof that a kernel would meet first"));
}

}  // namespace
}  // namespace tracestep
