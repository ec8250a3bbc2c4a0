// Sentences of trust, the first screen and published tables that once said more than
// their rows: each is fed the rows that it outran.
#include "lab/study/sentences_fixture.h"

namespace tracestep {
namespace {

TEST_F(SentencesTest, TheLossAtTheEndIsOfSeveralBatches) {
  const auto training = std::ranges::find(tables_, "training", &Table::name);
  ASSERT_GE(training->rows.size(), 4u);
  for (auto& row : training->rows) row[1] = 4.0;
  training->rows.back()[1] = 2.0;
  EXPECT_THAT(text_of("training"), HasSubstr("3.600 in those at the end"));
  EXPECT_THAT(text_of("training"), HasSubstr("4.000 in the first batch"));
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
  EXPECT_THAT(text_of("validity"), HasSubstr("Every time among them is what its label says."));
  const auto summary = std::ranges::find(summary_questions(), "trust-rows", &Question::id);
  EXPECT_THAT(answer(*summary, tables_).text.words(), HasSubstr("0 doubtful and 0 invalid"));
  EXPECT_THAT(answer(*summary, tables_).text.words(),
              HasSubstr(fmt::format("{} sound", validity->rows.size())));
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
      if (table.name.starts_with("phases@") && column.name == "kernels") {
        EXPECT_EQ(column.title, "launching nodes") << table.name;
      }
      if (column.name == "launches" && !is_counted) {
        EXPECT_EQ(column.title, "launching nodes") << table.name;
      }
    }
  }
}

TEST_F(SentencesTest, WhatIsSavedIsToldApartFromWhatThePeakHolds) {
  const auto question = std::ranges::find(summary_questions(), "result-memory", &Question::id);
  const Answer memory = answer(*question, tables_);
  EXPECT_THAT(memory.text.words(), Not(HasSubstr("of which")));
  EXPECT_THAT(memory.text.words(), HasSubstr("At the peak activations hold "));
  EXPECT_THAT(testing::wrong_claims(memory.text, tables_), ::testing::IsEmpty());
}

TEST_F(SentencesTest, SoundRowsSayWhatIsDoubtfulOfAttention) {
  const auto question = std::ranges::find(summary_questions(), "trust-rows", &Question::id);
  EXPECT_THAT(answer(*question, tables_).text.words(),
              HasSubstr("rows of attention alone 0 are doubtful and 0 invalid"));
  set("attention", {{"status", "ok"}}, "verdict", "doubt: throttled");
  const Answer trust = answer(*question, tables_);
  EXPECT_THAT(trust.text.words(), HasSubstr("rows of attention alone 1 are doubtful"));
  EXPECT_THAT(trust.text.words(), HasSubstr("rows of attention eager and compiled 0 are doubtful"));
  EXPECT_THAT(trust.text.words(), HasSubstr(" 2 rows of starts are not judged."));
  EXPECT_THAT(testing::wrong_claims(trust.text, tables_), ::testing::IsEmpty());
}

TEST_F(SentencesTest, TheWidestSamplesOfEveryTableAreNamed) {
  set("attention", {{"status", "ok"}}, "whole_samples_ms", Json::Array{1.0, 1.0, 1e6});
  const Evidence::Where step = {{"size", "small"}, {"mode", "step"}, {"ops", "fused"}};
  Answer spread = of_summary("trust-spread");
  EXPECT_THAT(spread.text.words(), HasSubstr("those of whole of "));
  for (const char* table : {"cells", "scaling", "ways", "ladder", "attention_ways"}) {
    EXPECT_THAT(spread.text.words(), HasSubstr(fmt::format(" in the table {}, ", table)));
  }
  Table& clocks = table_like("clocks");
  for (auto& row : clocks.rows) row[column(clocks, "cell")] = Json();
  set("ways", {{"mode", "step"}}, "cell", cell_of(tables_, "cells", step, "cell"));
  set("ways", {{"mode", "step"}}, "size", "small");
  set("ways", {{"mode", "step"}}, "samples_ms", Json::Array(8, Json(350.0)));
  spread = of_summary("trust-spread");  // 279.9 ms in the table cells
  EXPECT_THAT(spread.text.words(), HasSubstr(" lie widest apart: 25.1 %, 279.9 ms in the table "
                                             "cells, 350.0 ms in the table ways."));
  EXPECT_THAT(testing::wrong_claims(spread.text, tables_), ::testing::IsEmpty());
}

TEST_F(SentencesTest, NamesOfKernelsThatDifferArePrintedSo) {
  StudyReport report = small_study();
  const std::string ends(90, 'k');
  std::vector<std::string> names;
  for (StudySection& section : report.sections) {
    for (std::size_t i = 0; i < std::min(section.shown, section.tables.size()); ++i) {
      Table& table = section.tables[i];
      const auto name = std::ranges::find(table.columns, "top_kernel", &Column::name);
      if (name == table.columns.end()) continue;
      for (std::size_t row = 0; row < table.rows.size(); ++row) {
        names.push_back(fmt::format("{}tile{}x{}", ends, row, ends));
        table.rows[row][static_cast<std::size_t>(name - table.columns.begin())] = names.back();
      }
    }
  }
  ASSERT_GT(names.size(), 1u);
  const std::string page = study_page(report, Json::object(), Format::kMarkdown);
  for (const std::string& name : names) EXPECT_THAT(page, HasSubstr(name));
}

TEST_F(SentencesTest, RowsOfManyExperimentsAreMeasuredAgainByTheWholeStudy) {
  for (const Question& question : summary_questions()) {
    if (question.topic == kTrust) {
      EXPECT_EQ(answer(question, tables_).command, "tracestep study") << question.id;
    }
  }
  EXPECT_EQ(of("validity").command, "tracestep study");  // attention's rows among them
}

TEST_F(SentencesTest, WhatTrainingTookIsToldApartFromItsSteps) {
  const auto section = std::ranges::find(small_study().sections, "training", &StudySection::id);
  EXPECT_THAT(section->reading, HasSubstr("1.60 s of them in the steps themselves"));
}

TEST_F(SentencesTest, TheRowsThatAreDoubtfulAreNamed) {
  EXPECT_THAT(rests_on(of("pass-times")), Not(HasSubstr("(")));
  set("cells", {{"size", "small"}, {"mode", "forward"}, {"ops", "fused"}}, "verdict",
      "doubt: unsteady");
  const Answer doubtful = of("pass-times");
  ASSERT_EQ(doubtful.worst.size(), 1u);
  EXPECT_THAT(rests_on(doubtful), ::testing::EndsWith(fmt::format(" (doubtful: cells row {})",
                                                                  doubtful.worst[0].row + 1)));
}

TEST_F(SentencesTest, TheQuestionOfEveryTimeSaysWhatItLeavesOut) {
  set("attention", {{"status", "ok"}}, "verdict", "doubt: throttled");
  EXPECT_THAT(text_of("validity"), HasSubstr("rows of attention alone 1 are doubtful"));
}

TEST_F(SentencesTest, PublishedTimesOfOneCellAreOneCell) {
  Table& published = table_like("published");
  for (auto& row : published.rows) row[column(published, "compared")] = 0;
  for (const auto& [name, value] :
       {std::pair{"compared", Json(6)}, {"compared_again", Json(2)}, {"agree", Json(3)}}) {
    set("published", {{"device", "not stated"}}, name, value);
  }
  const Answer answer = of("published");
  EXPECT_THAT(answer.text.words(), HasSubstr("which are these same rows; 4 of them of different "
                                             "cells, since tables of a study share some; 6 of a "
                                             "device that is not stated; 3 agree"));
  EXPECT_THAT(testing::wrong_claims(answer.text, tables_), ::testing::IsEmpty());
}

TEST_F(SentencesTest, PublishedFiguresThatAreNoTimesAreCounted) {
  set("published_verdicts", {}, "suspicious", 5);
  const std::string text = text_of("published");
  EXPECT_THAT(text, HasSubstr("Over all published tables"));
  EXPECT_THAT(testing::wrong_claims(of("published").text, tables_), ::testing::IsEmpty());
}

TEST_F(SentencesTest, AnswersNameTheModelThatTheyAreOf) {
  EXPECT_THAT(text_of("compiled-saved"), HasSubstr("tiny: backward of a norm"));
  EXPECT_THAT(text_of("ladder"), HasSubstr("A step of tiny takes "));
  EXPECT_THAT(text_of("ladder"), HasSubstr("gradients (of such a model with 1 layer)"));
  EXPECT_THAT(text_of("compiled-attention"), HasSubstr("The whole takes "));
  EXPECT_THAT(text_of("largest-buffers"), HasSubstr("named by the operation that wrote it first"));
  EXPECT_THAT(text_of("bound"), HasSubstr("named by the roof that a kernel would meet first"));
}

TEST_F(SentencesTest, EveryPeakWithAPredictionIsHeldAgainstIt) {
  EXPECT_THAT(of_summary("trust-bytes").text.words(), HasSubstr(" of timed steps, "));
  EXPECT_THAT(of_summary("trust-bytes").text.words(), HasSubstr("Each is equal to its prediction"));
  set("cells", {{"mode", "forward"}}, "predicted_peak_bytes", 1024);
  const Answer off = of_summary("trust-bytes");
  EXPECT_THAT(off.text.words(), HasSubstr("A peak of timed steps is not the predicted one"));
  EXPECT_THAT(testing::wrong_claims(off.text, tables_), ::testing::IsEmpty());
}

TEST_F(SentencesTest, ARooflineOfAnUnknownDeviceIsNotItsOwn) {
  Table& published = table_like("published");
  for (auto& row : published.rows) row[column(published, "predicted")] = 0;
  set("published", {{"device", "not stated"}}, "predicted", 7);
  const Answer answer = of("published");
  EXPECT_THAT(answer.text.words(), HasSubstr("7 times without a cell here lie at the multiple"));
  EXPECT_THAT(answer.text.words(), HasSubstr("for 7 of them the device is not stated"));
  EXPECT_THAT(testing::wrong_claims(answer.text, tables_), ::testing::IsEmpty());
}

TEST_F(SentencesTest, WhatRanOutOfMemoryIsSplitByWhatMustHaveBeenAlive) {
  Table& published = table_like("published");
  for (const auto& [name, count] :
       {std::pair{"statuses", 9}, {"statuses_agree", 4}, {"statuses_with_more", 3}}) {
    for (auto& row : published.rows) row[column(published, name)] = 0;
    published.rows[0][column(published, name)] = count;
  }
  EXPECT_THAT(text_of("published"),
              HasSubstr("Of 9 cells that ran out of memory, the closed form of their label says so "
                        "for 4; 3 would fit unless"));
  EXPECT_THAT(text_of("published"), HasSubstr("for 2 it is something else."));
}

TEST_F(SentencesTest, APaceThatThePeaksDoNotExplainIsSaid) {
  for (const auto& [name, value] : {std::pair{"compared", Json(5)},
                                    {"agree", Json(3)},
                                    {"pace", Json(2.52)},
                                    {"by_low", Json(3.09)},
                                    {"by_high", Json(3.43)}}) {
    set("published", {}, name, value);
  }
  const Answer answer = of("published");
  EXPECT_THAT(answer.text.words(), HasSubstr("is 2.52, below what the peaks of the two devices"));
  Table& published = table_like("published");
  published.rows.push_back(std::vector<Json>(published.rows[0]));  // another table of that study
  const std::string text = text_of("published");
  EXPECT_EQ(text.find("is 2.52,"), text.rfind("is 2.52,"));
  EXPECT_THAT(testing::wrong_claims(answer.text, tables_), ::testing::IsEmpty());
}

}  // namespace
}  // namespace tracestep
