// Answers that were once misread: each figure is of the row that its words name.
#include "lab/report/html.h"
#include "lab/study/sentences_fixture.h"

namespace tracestep {
namespace {

using ::testing::StartsWith;

TEST_F(SentencesTest, KernelsOfTwoPrecisionsAreThoseOfTheSamePass) {
  const auto set_pass = [&](const char* precision, const char* pass, double ms, double products) {
    const std::string row =
        fmt::format("passes[mode step; pass {}; precision {}].", pass, precision);
    set(row + "ms", ms);
    set(row + "products_percent", products);
  };
  set_pass("fp32", "forward", 11.9, 89.1);
  set_pass("fp32", "all", 35.7, 87.4);
  set_pass("bf16", "all", 37.2, 82.9);
  EXPECT_THAT(text_of("bf16-kernels"),
              StartsWith("It falls from 87.4 % of the kernels' time to 82.9 %"));
  EXPECT_THAT(
      text_of("bf16-kernels"),
      HasSubstr("All kernels together take about as long: 37.20 ms, and 35.70 ms in fp32."));
  set_pass("bf16", "all", 71.4, 87.0);
  EXPECT_THAT(text_of("bf16-kernels"), StartsWith("It stays about the same: "));
  EXPECT_THAT(text_of("bf16-kernels"), HasSubstr("take 71.40 ms, 2.00 times fp32's 35.70 ms."));
}

TEST_F(SentencesTest, ClocksThatDifferByLessThanSamplesDoAgree) {
  const std::string clock = "clocks[mode inference].",
                    cell = "cells[size small; mode inference; ops fused].";
  set(clock + "busy_ms", 295.0);
  set(clock + "plain_wall_ms", 291.7);
  set(cell + "samples_ms", Json::Array{255.0, 280.0, 291.7, 291.7, 330.0, 350.0});
  EXPECT_THAT(text_of("clocks"), StartsWith("Yes, within noise: "));
  set(cell + "samples_ms", Json::Array(6, Json(291.7)));
  EXPECT_THAT(text_of("clocks"), StartsWith("They disagree: "));
}

TEST_F(SentencesTest, OneFigureOfRoundingsStandsInTheSentenceAndInTheTable) {
  for (auto& row : table_like("norms").rows) row[column(table_like("norms"), "roundings")] = 1.0;
  const std::string sum = "norms[norm layer norm; step sum of squares; ";
  set(sum + "format f16; input_scale 1.0].roundings", 11.0);
  set(sum + "format bf16; input_scale 1.0].roundings", 28.0);
  set(sum + "format bf16; input_scale 1000.0].roundings", 29.0);
  const Answer a = of("norms");
  EXPECT_THAT(a.text.words(),
              HasSubstr("In bfloat16 the sum of squares is off by 28 of its units"));
  EXPECT_TRUE(
      std::ranges::any_of(a.lines, [](const auto& line) { return line[3].words() == "28"; }));
}

TEST_F(SentencesTest, WhatALowerPrecisionGainsIsByRoundsInTheTableToo) {
  const Answer a = of("precision-by-size");
  ASSERT_EQ(a.lines.size(), 3u);
  EXPECT_EQ(a.lines[0][3].words(), "times as fast, by rounds");
  for (std::size_t line : {1, 2}) {
    EXPECT_THAT(a.text.words(), HasSubstr(a.lines[line][3].words())) << line;
    EXPECT_THAT(a.lines[line][3].pieces().front().formula, HasSubstr("samples_ms"));
  }
}

TEST_F(SentencesTest, SentencesHaveMeansAndTheirDeviations) {
  for (const char* mode : {"forward", "forward-backward", "step"}) {
    const std::string row = fmt::format("cells[size small; mode {}; ops fused].", mode);
    set(row + "median_ms", 9999.0);
    set(row + "mean_ms", 120.0);
    set(row + "std_ms", 3.0);
  }
  EXPECT_THAT(text_of("pass-times"), HasSubstr("Forward of small takes 120.0 ± 3.0 ms"));
  EXPECT_EQ(of_summary("tile-time").lead.words(), "120.0 ± 3.0 ms");
  EXPECT_THAT(text_of("warm-up"), HasSubstr("(means)"));
}

TEST_F(SentencesTest, TheShareOfProductsIsOfTheStepWhoseTimeIsSaid) {
  const Answer tile = of_summary("tile-products");
  EXPECT_EQ(tile.lead.words(), "33.3 %");
  EXPECT_EQ(tile.more.words(), "Of the kernels' time in a step of small, fused kernels.");
  Table& passes = table_like("passes");
  const std::size_t ops = column(passes, "ops");
  std::erase_if(passes.rows, [&](const auto& row) { return row[ops] == Json("fused"); });
  EXPECT_THAT(of_summary("tile-products").lead.words(), ::testing::EndsWith(" in primitive ops"));
}

TEST_F(SentencesTest, BytesSayOfWhichBatchAndOpsTheyAre) {
  EXPECT_THAT(text_of("peaks"), HasSubstr("Batch 4, primitive ops, fp32."));
  EXPECT_THAT(text_of("planned-ranks"), HasSubstr("Batch 2, context 256, fused ops, fp32."));
}

// Waiting is no part of collectives, and more than they take.
TEST_F(SentencesTest, WhatCollectivesAddIsWithWaiting) {
  set("ranks[form each gradient].communication_ms", 22.6);
  set("ranks[form each gradient].exposed_ms", 38.3);
  const Answer a = of("naive-ddp");
  EXPECT_THAT(a.text.words(), HasSubstr("A step is 38.30 ms longer for them and for waiting."));
  EXPECT_EQ(a.lines[0][3].words(), "with waiting, added");
}

TEST_F(SentencesTest, ACompiledStepThatNoiseLeavesOpenStandsBesideItsTimeInPrimitiveOps) {
  const std::string step = "ways[mode step; ops fused; executor compiled].";
  set(step + "base_speedup", 1.24);
  set(step + "base_low", 0.4);
  set(step + "base_high", 1.5);
  set(step + "median_ms", 38.48);
  set("ways[mode step; ops primitive; executor eager].median_ms", 55.07);
  EXPECT_THAT(text_of("compiled"),
              HasSubstr("takes 38.48 ms, in primitive ops 55.07 ms, too noisy to tell; "));
}

// --- the first screen ----------------------------------------------------------------------------

TEST_F(SentencesTest, WhatTakesTheTimeIsAllProductsOfTheFeedForward) {
  const std::string table =
      "time_by_component@small d_model 16 d_ff 32 layers 2 heads 2 context 8 batch 2 vocab 32 step "
      "fp32 fused";
  for (const auto& [component, share] :
       {std::pair{"ffn.w1", 22.0}, {"ffn.w2", 22.5}, {"ffn.w3", 21.5}, {"lm_head", 5.8}}) {
    set(fmt::format("{}[component {}].share_percent", table, component), share);
  }
  const std::string said = of_summary("short-time").text.words();
  EXPECT_THAT(said,
              StartsWith("The feed-forward's products take 66.0 % of a step of small, attention "));
  EXPECT_THAT(said, HasSubstr("the head 5.8 %."));
  EXPECT_THAT(said, HasSubstr("Backward takes 2.00 (95 %: 1.98 to 2.02) times forward."));
}

TEST_F(SentencesTest, WhetherItFitsIsSaidOfTheStepThatIsShownAndOfTheLargeModel) {
  EXPECT_THAT(of_summary("short-fit").text.words(), StartsWith("Yes: a step of small peaks at "));
  set("sizes[size planned].device_bytes", 1 << 20);
  const std::string said = of_summary("short-fit").text.words();
  EXPECT_THAT(said, StartsWith("A step of small does, "));
  EXPECT_THAT(said, HasSubstr(" of 1.00 MiB that a run may use; one of planned does not, "));
  EXPECT_THAT(said, HasSubstr("planned: batch 4, context 256, fp32, primitive ops."));
}

TEST_F(SentencesTest, LessMemoryIsSaidOnce) {
  const auto set_peaks = [&](std::int64_t full, std::int64_t low) {
    for (Table& table : tables_) {
      if (table.name != "steps") continue;
      for (auto& row : table.rows) {
        const bool is_low = row[column(table, "precision")] == Json("bf16");
        row[column(table, "peak_bytes")] = is_low ? low : full;
      }
    }
  };
  set_peaks(1000, 888);
  EXPECT_THAT(of_summary("short-bf16").text.words(), HasSubstr(", with 11.2 % less memory."));
  EXPECT_THAT(text_of("lower-precision"), HasSubstr("The peak falls by 11.2 %."));
  set_peaks(1000, 1022);
  EXPECT_THAT(of_summary("short-bf16").text.words(), HasSubstr(", with 2.2 % more memory."));
  EXPECT_THAT(text_of("lower-precision"), HasSubstr("The peak rises by 2.2 %."));
  set_peaks(1000, 999);
  EXPECT_THAT(of_summary("short-bf16").text.words(), HasSubstr(", in the same memory."));
}

TEST_F(SentencesTest, TheRowsThatASentenceReadStandInItsTable) {
  const Answer a = of("saved-operations");
  ASSERT_EQ(a.lines.size(), 9u);
  EXPECT_THAT(a.lines[0][0].words(), ::testing::MatchesRegex("operation \\(8 of [0-9]+ rows\\)"));
  const Evidence evidence(tables_);
  for (const RowRef& ref : a.rows) {
    const auto row = evidence.rows(ref.table).at(ref.row);
    if (!ref.table.starts_with("saved_by_op@") || row.text("component") == "total") continue;
    const bool is_there = std::ranges::any_of(a.lines, [&](const auto& line) {
      return line[0].words() == row.text("op") && line[1].words() == row.text("component");
    });
    const std::string name = row.text("op") + " of " + row.text("component");
    const bool is_said = a.text.words().find(name) != std::string::npos;
    EXPECT_TRUE(is_there || !is_said) << row.text("op") << " of " << row.text("component");
  }
  const Answer ladder = of("ladder");
  const auto rungs = evidence.rows("ladder");
  std::size_t at = 0;  // in the order in which they were climbed
  for (std::size_t line = 1; line < ladder.lines.size(); ++line) {
    while (at < rungs.size() && rungs[at].text("rung") != ladder.lines[line][0].words()) ++at;
    EXPECT_LT(at, rungs.size()) << ladder.lines[line][0].words();
  }
}

TEST_F(SentencesTest, AReasonThatRowsShareIsSaidOnce) {
  for (const char* mode : {"step", "forward"}) {
    set_noise(fmt::format("cells[size small; mode {}; ops fused]", mode), 280, 0.15);
  }
  set("cells[size small; mode forward; ops fused].verdict", "doubt: unsteady, drifting");
  const std::string doubt = of("pass-times").doubt.words();
  EXPECT_EQ(doubt.find("the samples lie far apart"), doubt.rfind("the samples lie far apart"));
}

TEST(LeadsTest, TheFirstScreenAsksHowFarFiguresCanBeTrusted) {
  const StudyReport report = answered(small_study().sections);
  const PageHead head = page_head(report, Json::object());
  EXPECT_EQ(head.trust_question, "How sure are these figures?");
  EXPECT_THAT(html_page(head, Json::object(), report.tables, {}, {}),
              HasSubstr("<h2>How sure are these figures?</h2>"));
}

}  // namespace
}  // namespace tracestep
