// Sentences of times and kernels that once said more than
// their rows: each is fed the rows that it outran.
#include "lab/study/sentences_fixture.h"

namespace tracestep {
namespace {

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
  EXPECT_THAT(products(10, 34.9), Not(HasSubstr("as backward has two")));  // within noise of 3.5
}

TEST_F(SentencesTest, AShareRisesOrFallsOnlyBeyondNoise) {
  for (const auto& [mode, others] : {std::pair{"inference", 10.0}, {"step", 30.3}}) {
    const double products = mode == std::string("step") ? 30.0 : 10.0;
    set("passes", {{"mode", mode}, {"pass", "all"}}, "products_ms", products);
    set("passes", {{"mode", mode}, {"pass", "all"}}, "ms", products + others);
  }
  EXPECT_THAT(text_of("product-share"), HasSubstr("not apart beyond noise"));
  EXPECT_THAT(text_of("product-share"), Not(HasSubstr("share falls")));
  set("passes", {{"mode", "step"}, {"pass", "all"}}, "ms", 90.0);
  EXPECT_THAT(text_of("product-share"), HasSubstr("share falls"));
}

TEST_F(SentencesTest, KernelsThatTakeLongerThanTheWallAgreeWithNothing) {
  set("clocks", {{"mode", "step"}}, "busy_ms", 10.4);  // of 10 ms
  EXPECT_THAT(text_of("clocks"), HasSubstr("Kernels would be 104.0 % of the wall"));
  EXPECT_THAT(text_of("clocks"), Not(HasSubstr("agree")));
}

TEST_F(SentencesTest, KernelsThatTakeLongerThanTheSpanLeaveNoGaps) {
  EXPECT_THAT(text_of("clocks"),
              HasSubstr("That leaves 900.0 µs of the span: 1.000 ms between kernels of recorded "
                        "steps, less 100.0"));
  set("clocks", {{"mode", "step"}}, "gaps_ms", Json());
  EXPECT_FALSE(of("clocks").refused);
  EXPECT_THAT(text_of("clocks"), Not(HasSubstr("That leaves")));
}

TEST_F(SentencesTest, WhatIsLeftOfTheSpanIsSaidInItsThreeParts) {
  const Evidence::Where step = {{"mode", "step"}};
  set("clocks", step, "recorded_gaps_ms", 0.1);
  set("clocks", step, "interrupted_ms", 0.3);
  set("clocks", step, "span_ms", 9.4);
  const std::string parts =
      ": 100.0 µs between kernels of recorded steps, 300.0 µs for which single launches were held "
      "up there, which counts for no kernel, 500.0 µs by which plain steps came out longer.";
  const Answer clocks = of("clocks");
  EXPECT_THAT(clocks.text.words(), HasSubstr("That leaves 900.0 µs of the span" + parts));
  EXPECT_THAT(testing::wrong_claims(clocks.text, tables_), ::testing::IsEmpty());
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
  EXPECT_THAT(text_of("components"), HasSubstr("What is left are "));
  EXPECT_THAT(text_of("components"), HasSubstr(": 1.000 ms between kernels of recorded steps"));
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
  EXPECT_THAT(text_of("components"), HasSubstr("are equal to the step's"));
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

TEST_F(SentencesTest, AnOptimizerThatNoiseHidesIsTakenFromTheProfileOfTheSameCell) {
  set_samples("step", 240, 8);
  set("cells", {{"size", "small"}, {"mode", "step"}, {"ops", "fused"}}, "samples_ms",
      Json::Array{230.0, 240.0, 250.0});
  EXPECT_THAT(text_of("pass-times"), HasSubstr("AdamW's part cannot be told"));
  EXPECT_THAT(text_of("pass-times"), Not(HasSubstr("In the profile")));  // of primitive ops
  set("passes", {{"mode", "step"}, {"pass", "optimizer"}}, "ms", 59.9);
  set("passes", {{"mode", "step"}, {"pass", "optimizer"}}, "cell",
      cell_of(tables_, "cells", {{"size", "small"}, {"mode", "step"}, {"ops", "fused"}}, "cell"));
  EXPECT_THAT(text_of("pass-times"),
              HasSubstr("In the profile of that cell its kernels take 59.9"));
}

TEST_F(SentencesTest, AWholeStepThatIsShorterThanItsPartIsNoAnswer) {
  set_samples("step", 100, 8);
  EXPECT_TRUE(of("pass-times").refused);
  EXPECT_THAT(text_of("pass-times"), HasSubstr("which cannot be"));
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
              HasSubstr("100.7 % of its time, above 100.0 %: moving them sets its time, and that "
                        "rate is too low for it, or a cache holds some of them. "));
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
  EXPECT_THAT(
      text_of("contexts"),
      HasSubstr(
          "Time grows by less than the work; growth of time over growth of work is 0.21, held "
          "against the range from 0.80 to 1.25."));
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
  EXPECT_THAT(answer.text.words(), HasSubstr("One of the 2 kernels with a roof of matmul of "));
  EXPECT_THAT(testing::wrong_claims(answer.text, tables_), ::testing::IsEmpty());
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
  EXPECT_THAT(
      with_optimizer(45),
      HasSubstr("Without AdamW the others grow less, 1.50 times: it is AdamW that lowers the "
                "products' share, which would be 66.7 %."));
}

TEST_F(SentencesTest, TimesOfDifferentVocabulariesSayTheirs) {
  set("cells", {{"size", "tiny"}, {"mode", "forward"}, {"ops", "fused"}}, "vocab", 256);
  EXPECT_THAT(text_of("pass-times"), HasSubstr("tiny at context 8, vocabulary 256: "));
  EXPECT_THAT(text_of("sizes"), HasSubstr("by layer, with embedding and head in it, "));
}

TEST_F(SentencesTest, OtherTimesOfACellAreItsNoiseAndAreNamed) {
  EXPECT_THAT(text_of("pass-times"), HasSubstr("AdamW adds "));
  EXPECT_THAT(text_of("pass-times"), Not(HasSubstr("in this study forward with")));
  const Evidence::Where both = {{"size", "small"}, {"mode", "forward-backward"}, {"ops", "fused"}},
                        other = {{"size", "small"}, {"precision", "fp32"}};
  set("steps", other, "cell", cell_of(tables_, "cells", both, "cell"));
  set("steps", other, "median_ms", 290.0);  // 240 in the table cells, and a whole step 280
  set("steps", other, "std_ms", 1.0);
  const Answer passes = of("pass-times");
  for (const char* part : {"AdamW's part cannot be told",
                           "At another time in this study forward with backward took 290.0 ms.",
                           "Noise leaves open whether that is twice"}) {
    EXPECT_THAT(passes.text.words(), HasSubstr(part));
  }
  EXPECT_THAT(testing::wrong_claims(passes.text, tables_), ::testing::IsEmpty());
  const Answer result = of_summary("result-passes");
  EXPECT_THAT(result.text.words(), HasSubstr("took 290.0 ms, which leaves 2.63 times forward for"));
  EXPECT_THAT(testing::wrong_claims(result.text, tables_), ::testing::IsEmpty());
}

TEST_F(SentencesTest, AGrowthThatAnotherTimeOfTheCellDeniesIsOpen) {
  set_samples("forward", 60, 8);  // 10 in tiny, with a sixth of the FLOPs
  EXPECT_THAT(text_of("sizes"), HasSubstr("time grows about as the work does"));
  const Evidence::Where forward = {{"size", "tiny"}, {"mode", "forward"}, {"ops", "fused"}};
  set("steps", {{"size", "tiny"}, {"precision", "fp32"}}, "cell",
      cell_of(tables_, "cells", forward, "cell"));
  set("steps", {{"size", "tiny"}, {"precision", "fp32"}}, "median_ms", 4.0);  // 10 in cells
  const Answer sizes = of("sizes");
  EXPECT_THAT(sizes.text.words(), HasSubstr("Noise leaves open whether time grows"));
  EXPECT_THAT(sizes.text.words(),
              HasSubstr("At another time in this study the first took 4.000 ms."));
  EXPECT_THAT(testing::wrong_claims(sizes.text, tables_), ::testing::IsEmpty());
}

TEST_F(SentencesTest, AModelWithANamesakeSaysItsVocabulary) {
  EXPECT_THAT(of_summary("result-memory").text.words(), HasSubstr("step of small at context"));
  set("memory", {{"mode", "step"}}, "vocab", 64);
  const Answer memory = of_summary("result-memory");
  EXPECT_THAT(memory.text.words(), HasSubstr("step of small, vocabulary 64 at context"));
  EXPECT_THAT(testing::wrong_claims(memory.text, tables_), ::testing::IsEmpty());
  EXPECT_THAT(text_of("ladder"), HasSubstr("A step of tiny takes "));
  set("cells", {{"size", "tiny"}, {"mode", "step"}}, "vocab", 64);
  EXPECT_THAT(text_of("ladder"), HasSubstr("A step of tiny, vocabulary 32 takes "));
}

TEST_F(SentencesTest, ModelsOfTheFirstScreenHaveTheirVocabularies) {
  StudyReport report = small_study();
  cell_of(report.tables, "warmup", {{"warmup", 0}}, "vocab") = 64;
  const auto facts = summary_facts(report, Json::object());
  const auto models =
      std::ranges::find(facts, "models timed", [](const auto& fact) { return fact.first; });
  ASSERT_NE(models, facts.end());
  EXPECT_THAT(models->second, HasSubstr("tiny (vocabulary 32), small (vocabulary 32)"));
  EXPECT_THAT(models->second, HasSubstr("tiny (vocabulary 64)"));
}

TEST_F(SentencesTest, AStartWithoutACostStandsBesideStepsBehindOthers) {
  set("warmup", {{"warmup", 0}}, "first_ms", 10.5);
  set("warmup", {{"warmup", 2}}, "first_ms", 11.5);
  EXPECT_THAT(text_of("warm-up"), HasSubstr("The first two steps timed behind those others took "
                                            "11.50 ms and 10.00 ms."));
}

TEST_F(SentencesTest, AnExampleOfADoubtHasItsTable) {
  set("validity", {{"table", "scaling"}}, "verdict", "doubt: unsteady");
  EXPECT_THAT(text_of("validity"), HasSubstr("1 with doubt: unsteady ("));
  EXPECT_THAT(text_of("validity"), HasSubstr(" in the table scaling)"));
}

TEST_F(SentencesTest, FactorsAreApartBeyondWhatTwoRecordingsDiffer) {
  set("passes", {{"mode", "step"}, {"pass", "all"}}, "ms", 59.0);  // others 2.90 times, products 3
  set("passes", {{"mode", "step"}, {"pass", "optimizer"}}, "ms", 0.0);
  EXPECT_THAT(text_of("product-share"), HasSubstr("So their share rises"));
  set("passes", {{"mode", "step"}, {"pass", "forward"}}, "products_ms", 10.5);
  EXPECT_THAT(text_of("product-share"), HasSubstr("The two factors are not apart beyond noise"));
}

TEST_F(SentencesTest, SharesOfTwoInstrumentsAreToldApart) {
  const Evidence::Where timed = {{"size", "small"}, {"mode", "step"}, {"ops", "primitive"}},
                        profiled = {{"mode", "step"}};
  set("cells", timed, "recorded_by", "events around each kernel");
  set("clocks", profiled, "recorded_by", "events around each kernel");
  EXPECT_THAT(text_of("product-share"), Not(HasSubstr("These are shares")));
  set("clocks", profiled, "recorded_by", "the device's profiler");
  const Answer shares = of("product-share");
  EXPECT_THAT(shares.text.words(),
              HasSubstr("These are shares of kernels' times by the device's profiler; the tables "
                        "of time by component and by class have theirs by events around each "
                        "kernel, from other recorded steps. "));
  EXPECT_THAT(testing::wrong_claims(shares.text, tables_), ::testing::IsEmpty());
}

TEST_F(SentencesTest, AGrowthIsPrintedAndNotCalledTheWorksAtTheEdge) {
  const auto with_last = [&](double ms) {
    for (const auto& [context, at] : {std::pair{4, 10.0}, {8, 20.0}, {16, ms}}) {
      set("scaling", {{"mode", "step"}, {"context", context}}, "samples_ms",
          Json::Array(8, Json(at)));
      set("scaling", {{"mode", "step"}, {"context", context}}, "flops", 1000 * context);
    }
    EXPECT_THAT(testing::wrong_claims(of("contexts").text, tables_), ::testing::IsEmpty());
    return text_of("contexts");
  };
  EXPECT_THAT(with_last(28.8),  // 2.88 times the time for 4 times the work
              HasSubstr("Time grows by less than the work, as short contexts use the device less "
                        "well; growth of time over growth of work is 0.72, held against"));
  EXPECT_THAT(with_last(36.0), HasSubstr("Time grows about as the work does; growth of time over "
                                         "growth of work is 0.90, held against"));
}

TEST_F(SentencesTest, OneStepIsNoSteps) {
  EXPECT_THAT(text_of("warm-up"), HasSubstr("; 1 warm-up step would have left them out"));
}

TEST_F(SentencesTest, ClocksNameOtherTimesOfTheirCell) {
  const Evidence::Where step = {{"size", "small"}, {"mode", "step"}, {"ops", "primitive"}};
  set("clocks", {{"mode", "step"}}, "cell", cell_of(tables_, "cells", step, "cell"));
  const Answer clocks = of("clocks");
  EXPECT_THAT(clocks.text.words(),
              HasSubstr(" At another time in this study the step took 419.8 ms."));
  EXPECT_THAT(testing::wrong_claims(clocks.text, tables_), ::testing::IsEmpty());
}

TEST_F(SentencesTest, ARoofThatAnotherKernelPassesIsNotTheLimitOfTheFirst) {
  Table& matrix = table_like("matrix@");
  const auto roof = column(matrix, "roof_percent"), bound = column(matrix, "bound"),
             ms = column(matrix, "ms");
  for (auto& row : matrix.rows) {
    if (!row[bound].is_string()) continue;
    row[bound] = "FLOPs";
    row[roof] = 90.0;
    row[ms] = 1.0;
  }
  const auto first =
      std::ranges::find_if(matrix.rows, [&](const auto& row) { return row[bound].is_string(); });
  ASSERT_NE(first, matrix.rows.end());
  (*first)[ms] = 10.0;
  (*first)[roof] = 80.0;
  EXPECT_THAT(text_of("bound"), HasSubstr(", where its roof would allow 8.000 ms: picked for what "
                                          "it would gain there, 2.000 ms; the next, of "));
  EXPECT_THAT(text_of("bound"), HasSubstr(" would gain 100.0 µs."));
  EXPECT_THAT(text_of("bound"), Not(HasSubstr("That roof was measured too low")));
  std::vector<Json> above = *first;
  above[ms] = 1.0;
  above[roof] = 125.0;
  matrix.rows.insert(matrix.rows.begin(), above);
  const Answer low = of("bound");
  EXPECT_THAT(low.text.words(), HasSubstr("is above it, at 125.0 %, and at that rate it would be "
                                          "6.400 ms."));
  EXPECT_THAT(low.text.words(), HasSubstr(" are above 105.0 % of their roof, up to 125.0 %."));
  EXPECT_THAT(low.text.words(), Not(HasSubstr("a mask hides")));  // of primitive ops
  EXPECT_THAT(testing::wrong_claims(low.text, tables_), ::testing::IsEmpty());
}

TEST_F(SentencesTest, WhatPassesThePublishedBandwidthIsInCaches) {
  Table& matrix = table_like("matrix@");
  const auto roof = column(matrix, "roof_percent"), bound = column(matrix, "bound"),
             ms = column(matrix, "ms");
  double high = 110;
  for (auto& row : matrix.rows) {
    if (!row[bound].is_string()) continue;
    row[bound] = high < 160 ? "bytes" : "FLOPs";  // 110, 120 and so on to 150 %
    row[roof] = high < 160 ? high : 90.0;
    row[ms] = 1.0;
    high += 10;
  }
  const std::string before = text_of("bound");
  EXPECT_THAT(before, HasSubstr("these rows do not tell which. "));
  EXPECT_THAT(before, Not(HasSubstr("publishes")));
  Table& ceilings = table_like("ceilings");
  ceilings.columns.push_back(real_column("published", "", "", 1));
  for (auto& row : ceilings.rows) {
    row.push_back(1.28 * row[column(ceilings, "value")].as_double());
  }
  const Answer bound_by = of("bound");
  EXPECT_THAT(
      bound_by.text.words(),
      HasSubstr(
          "60.0 % of the time of those bound by bytes is above 128.0 %, the bandwidth that the "
          "device's maker publishes: there caches hold some of the bytes. "));
  EXPECT_THAT(testing::wrong_claims(bound_by.text, tables_), ::testing::IsEmpty());
}

TEST_F(SentencesTest, OtherClocksSayWhatRecordingChanges) {
  EXPECT_THAT(text_of("clocks"),
              HasSubstr(" of kernels in recorded steps, whose wall time is off by "));
}

}  // namespace
}  // namespace tracestep
