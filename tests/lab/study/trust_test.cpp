// Answers tell the standing of the rows that they rest on.
#include "lab/study/sentences_fixture.h"

namespace tracestep {
namespace {

TEST_F(SentencesTest, ACardIsWorthWhatItsWorstRowIs) {
  EXPECT_EQ(of("pass-times").standing, Standing::kSound);
  set_samples("step", 280, 1);
  EXPECT_EQ(of("pass-times").standing, Standing::kSingle);
  set_noise("cells[size small; mode step; ops fused]", 280, 0.15);
  EXPECT_EQ(of("pass-times").standing, Standing::kDoubtful);
  set("cells[size small; mode forward; ops fused].verdict", "invalid: two_graphs");
  EXPECT_EQ(of("pass-times").standing, Standing::kInvalid);
  EXPECT_EQ(of("formats").standing, Standing::kSound);
}

TEST_F(SentencesTest, NoiseIsAMarkWhereItCouldChangeWhatTheAnswerStates) {
  const std::string forward = "cells[size small; mode forward; ops fused]",
                    low = "steps[size small; mode forward-backward; precision bf16]";
  set_noise(forward, 80, 0.02);  // the checker doubts it, because of other programs perhaps
  EXPECT_EQ(of("pass-times").standing, Standing::kSound);
  set_noise(forward, 80, 0.1);
  const Answer noisy = of("pass-times");
  EXPECT_EQ(noisy.standing, Standing::kDoubtful);
  ASSERT_FALSE(noisy.worst.empty());
  EXPECT_EQ(noisy.worst.front().table, "cells");
  // A gain far beyond the twentieth within which two are the same stays one, whatever a little
  // noise does; one that hardly exceeds it may be none.
  set_noise(low, 50, 0.06);
  EXPECT_EQ(of("lower-precision").standing, Standing::kSound);
  set_noise(low, 50, 0.1);
  EXPECT_EQ(of("lower-precision").standing, Standing::kDoubtful);
  const Json& in_fp32 =
      cell_at(tables_, "steps[size small; mode forward-backward; precision fp32].samples_ms");
  std::vector<double> samples;
  for (const Json& ms : in_fp32.items()) samples.push_back(ms.as_double());
  const double full = median_of(samples);
  set_noise(low, full / 1.08, 0.02);
  EXPECT_THAT(of("lower-precision").text.words(), HasSubstr("1.08"));
  EXPECT_EQ(of("lower-precision").standing, Standing::kSound);
  // Where noise moves it into the range, the answer says so, and states no difference.
  set_noise(low, full / 1.08, 0.03);
  EXPECT_THAT(of("lower-precision").text.words(), HasSubstr("noise"));
  EXPECT_EQ(of("lower-precision").standing, Standing::kSound);
  // A doubt that is not about noise counts, however close the samples are.
  set_noise(low, 50, 0.001);
  set(low + ".verdict", "doubt: profiled");
  EXPECT_EQ(of("lower-precision").standing, Standing::kDoubtful);
}

TEST_F(SentencesTest, TheFirstScreenMarksWhatRestsOnDoubtfulRows) {
  const auto first_screen = [&] {
    StudyReport report = small_study();
    report.summary = answer_all(summary_questions(), tables_);
    return page_head(report, Json::object()).tiles.front().standing;
  };
  EXPECT_EQ(first_screen(), "sound");
  set_noise("cells[size small; mode step; ops fused]", 280, 0.1);
  EXPECT_EQ(first_screen(), "noisy");
}

TEST_F(SentencesTest, PartsOfAStepAreKnownNoBetterThanTheStepsThatWereRecorded) {
  const Answer sound = of_summary("short-time");
  EXPECT_EQ(sound.standing, Standing::kSound);
  const auto parts = std::ranges::find_if(
      sound.rows, [](const RowRef& ref) { return ref.table.starts_with("time_by_component@"); });
  ASSERT_NE(parts, sound.rows.end());
  Table recorded{.name = "recorded", .columns = {text_column("label"), verdict_column()}};
  recorded.add_row({parts->table.substr(parts->table.find('@') + 1), "doubt: recorded_unsteady"});
  tables_.push_back(std::move(recorded));
  EXPECT_EQ(of_summary("short-time").standing, Standing::kDoubtful);
}

// With a part s of a step, s moves by 2(1 - s) of what noise moves the step by.
TEST_F(SentencesTest, ALargeShareOfAStepIsKnownBetterThanTheStep) {
  set_noise("cells[size small; mode step; ops fused]", 280, 0.3);
  Table& passes = *std::ranges::find(tables_, "passes", &Table::name);
  const std::size_t share = column(passes, "products_percent"), verdict = column(passes, "verdict");
  const auto standing = [&](double percent, const char* says) {
    for (auto& row : passes.rows) {
      row[share] = percent;
      row[verdict] = says;
    }
    return of_summary("tile-products").standing;
  };
  EXPECT_EQ(standing(95, "doubt: unsteady"), Standing::kSound);
  EXPECT_EQ(standing(80, "doubt: unsteady"), Standing::kDoubtful);
  EXPECT_EQ(standing(50, "doubt: unsteady"), Standing::kDoubtful);
  EXPECT_EQ(standing(95, "doubt: recorded_unsteady"), Standing::kDoubtful);
  set_samples("step", 280, 1);  // of which the noise is not known
  EXPECT_EQ(standing(95, "doubt: too_few_samples"), Standing::kDoubtful);
}

// A kernel that takes most of a step by far stays the largest, whatever noise does.
TEST_F(SentencesTest, TheNameOfAKernelIsKnownAsWellAsItsShare) {
  set_noise("cells[size small; mode step; ops fused]", 280, 0.3);
  Table& passes = *std::ranges::find(tables_, "passes", &Table::name);
  std::vector<RowRef> read = of_summary("tile-products").rows;
  for (RowRef& ref : read) {
    if (ref.table == "passes") ref.columns = {"products_percent", "top_kernel"};
  }
  const auto standing = [&](double percent) {
    for (auto& row : passes.rows) {
      row[column(passes, "products_percent")] = 95;
      row[column(passes, "top_percent")] = percent;
      row[column(passes, "top_kernel")] = "gemm";
      row[column(passes, "verdict")] = "doubt: unsteady";
    }
    return standing_of(tables_, read, 0.05);
  };
  EXPECT_EQ(standing(95), Standing::kSound);
  EXPECT_EQ(standing(30), Standing::kDoubtful) << "another kernel may take as much";
}

TEST_F(SentencesTest, WhatIsPrintedOfATileIsTwoSentencesWithTheSignOfItsRows) {
  set_noise("cells[size small; mode step; ops fused]", 280, 0.15);
  StudyReport report = small_study();
  report.summary = answer_all(summary_questions(), tables_);
  const std::string page = study_page(report, Json::object(), Format::kMarkdown, "charts");
  EXPECT_THAT(page,
              ::testing::ContainsRegex("One training step:\\*\\* ~ [0-9.]+ ± [0-9.]+ ms. Of"));
}

TEST_F(SentencesTest, WhatCompilingGainsIsByRoundsOverEagerFusedOpsAndFusingHasItsOwnFigure) {
  const auto set_rounds = [&](const char* ops, const char* executor, Json::Array ms) {
    const std::string row = fmt::format("ways[mode step; ops {}; executor {}].", ops, executor);
    set(row + "visit_samples", Json::Array(ms.size(), Json(1)));
    set(row + "samples_ms", std::move(ms));
  };
  const auto said = [&] { return of_summary("short-compile").text.words(); };
  // Every second round the machine is half as fast.
  set_rounds("primitive", "eager", {30.0, 60.0, 30.0, 60.0, 30.0, 60.0});
  set_rounds("fused", "eager", {20.0, 40.0, 20.0, 40.0, 20.0, 40.0});
  set_rounds("fused", "compiled", {20.0, 40.0, 20.0, 40.0, 20.0, 40.0});
  EXPECT_THAT(said(), ::testing::StartsWith("Little: tiny takes "));
  EXPECT_THAT(said(), HasSubstr(" eager (fused ops). Fusing does gain: 1.50 times."));
  set_rounds("fused", "compiled", {10.0, 20.0, 10.0, 21.0, 10.0, 20.0});
  EXPECT_THAT(said(), ::testing::StartsWith("Time: tiny takes "));
  EXPECT_THAT(said(), HasSubstr("ops): 2.00 (95 %: 1.90 to 2.00) times as fast."));
  set_rounds("fused", "compiled", {10.0, 20.0, 10.0});  // visited no more after three rounds
  EXPECT_THAT(said(), HasSubstr("ops): 2.00 times as fast."));
  set_rounds("fused", "compiled", {10.0, 50.0, 10.0, 45.0, 10.0, 50.0});
  EXPECT_THAT(said(), ::testing::StartsWith("Noise leaves it open: tiny takes "));
  set_rounds("fused", "compiled", {40.0, 80.0, 40.0, 80.0, 40.0, 80.0});
  EXPECT_THAT(said(), ::testing::StartsWith("It loses: "));
  EXPECT_THAT(said(), HasSubstr("(fused ops): 2.00 times as long."));
}

TEST(LeadsTest, WhatTheFirstScreenComparesIsMeasuredInSixRoundsOrMore) {
  const std::vector<Table>& tables = testing::measured_study().tables;
  const Table& ways = *std::ranges::find(tables, "ways", &Table::name);
  const std::size_t mode = ways.index_of("mode").value(),
                    visits = ways.index_of("visit_samples").value();
  std::size_t steps = 0;
  for (const auto& row : ways.rows) {
    if (row[mode] != Json("step")) continue;
    EXPECT_GE(row[visits].size(), 6u);
    ++steps;
  }
  EXPECT_EQ(steps, 3u) << "in primitive ops, in fused ones, and compiled";
}

TEST_F(SentencesTest, ADoubtIsSaidInWords) {
  set_noise("cells[size small; mode step; ops fused]", 280, 0.15);
  set("cells[size small; mode step; ops fused].verdict", "doubt: others_running, drifting");
  EXPECT_EQ(of("pass-times").doubt.words(),
            "Noisy: other programs ran; the second half of the samples differs from the first.");
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
  EXPECT_EQ(of("compiled-start").standing, Standing::kSingle);
}

// A start is judged as the same step is in rounds.
TEST_F(SentencesTest, AStartHasTheVerdictOfItsStep) {
  EXPECT_EQ(of("warm-up").standing, Standing::kSound);
  set("warmup[warmup 0].verdict", "doubt: unsteady");
  set_noise("cells[size tiny; mode step; ops fused]", 35, 0.02);
  EXPECT_EQ(of("warm-up").standing, Standing::kSound);
  set_noise("cells[size tiny; mode step; ops fused]", 35, 0.15);
  EXPECT_EQ(of("warm-up").standing, Standing::kDoubtful);
  const std::vector<Table>& measured = testing::measured_study().tables;
  const Table& starts = *std::ranges::find(measured, "warmup", &Table::name);
  for (const auto& row : starts.rows) {
    EXPECT_TRUE(row[starts.index_of("verdict").value()].is_string()) << row[0].dump();
  }
}

TEST_F(SentencesTest, BytesOfAttentionAndLaunchesAreExactWhateverItsTimesAre) {
  for (Table& table : tables_) {
    for (std::size_t i = 0; i < table.columns.size(); ++i) {
      if (!is_verdict_column(table.columns[i])) continue;
      for (auto& row : table.rows) row[i] = "doubt: profiled";
    }
  }
  for (const char* exact :
       {"attention-bytes", "attention-limit", "launches", "compiled-memory", "peaks"}) {
    EXPECT_EQ(of(exact).standing, Standing::kSound) << exact;
  }
  EXPECT_EQ(of("saved-operations").standing, Standing::kDoubtful);  // says what it costs in time
  for (const char* timed : {"attention-times", "compiled", "ladder", "fused", "contexts"}) {
    EXPECT_EQ(of(timed).standing, Standing::kDoubtful) << timed;
  }
}

TEST_F(SentencesTest, EveryStepIsJudgedOnceWhicheverTablesShowIt) {
  const auto validity = std::ranges::find(tables_, "validity", &Table::name);
  std::set<std::string> names;
  for (const auto& row : validity->rows) {
    EXPECT_TRUE(names.insert(row[0].as_string()).second) << row[0].as_string();
  }
  for (const char* table : {"time", "scaling", "steps", "ways", "ladder"}) {
    EXPECT_NO_THROW(cell_at(tables_, fmt::format("validity[table {}].verdict", table))) << table;
  }
}

TEST_F(SentencesTest, TablesThatShowOneStepHaveOneTimeOfIt) {
  const Evidence evidence(testing::measured_study().tables);
  int shared = 0;
  for (const auto& way : evidence.rows("ways")) {
    for (const char* table : {"cells", "steps"}) {
      for (const auto& other : evidence.same_cell(way, table)) {
        EXPECT_EQ(way.numbers("samples_ms"), other.numbers("samples_ms")) << table;
        ++shared;
      }
    }
  }
  EXPECT_GE(shared, 6);
  int profiled = 0;
  for (const auto& clock : evidence.rows("clocks")) {
    for (const auto& cell : evidence.same_cell(clock, "cells")) {  // none of a bf16 step
      EXPECT_DOUBLE_EQ(clock.get("plain_wall_ms").value, cell.get("wall_ms").value);
      ++profiled;
    }
  }
  EXPECT_GE(profiled, 2);
}

TEST_F(SentencesTest, ARowIsWorthWhatItsStepIsOrLess) {
  tables_ = testing::measured_study().tables;
  const Evidence evidence(tables_);
  const auto weight = [](const std::string& verdict) {
    return verdict.starts_with("invalid") ? 2 : verdict.starts_with("doubt") ? 1 : 0;
  };
  int judged = 0;
  for (const char* table : {"cells", "time", "scaling", "steps", "ways", "clocks"}) {
    for (const auto& row : evidence.rows(table)) {
      const auto step = evidence.rows("validity", {{"cell", Json(row.text("label"))}});
      ASSERT_EQ(step.size(), 1u) << row.text("label");
      EXPECT_GE(weight(row.text("verdict")), weight(step.front().text("verdict"))) << table;
      ++judged;
    }
  }
  EXPECT_GT(judged, 30);
}

TEST_F(SentencesTest, ANoteIsNoDoubt) {
  const auto validity = std::ranges::find(tables_, "validity", &Table::name);
  for (auto& row : validity->rows) row[2] = "note: instrument_cost";
  ASSERT_EQ(validity->columns[2].name, "verdict");
  EXPECT_THAT(text_of("validity"), HasSubstr("Yes: none of "));
  EXPECT_THAT(of_summary("trust").text.words(), HasSubstr("times is in doubt."));
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
  EXPECT_FALSE(doubtful.refused);
  EXPECT_EQ(doubtful.doubt.words(), "Noisy: recorded steps are few, or unlike each other.");
  EXPECT_THAT(doubtful.command, HasSubstr("--d-model"));  // the cell that was measured
  std::erase_if(tables_, [](const Table& table) { return table.name == "ladder"; });
  const Answer lacking = of("ladder");
  ASSERT_TRUE(lacking.refused);
  EXPECT_EQ(lacking.command, "tracestep compile --part ladder --device cuda");
}

TEST_F(SentencesTest, NodesThatLaunchAreNotCalledLaunches) {
  EXPECT_THAT(text_of("ladder"), HasSubstr("Launching nodes go from "));
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

TEST_F(SentencesTest, NamesOfKernelsThatDifferArePrintedSo) {
  StudyReport report = small_study();
  const std::string ends(90, 'k');
  std::vector<std::string> names;
  for (StudySection& section : report.sections) {
    for (Table& table : section.tables) {
      const auto name = std::ranges::find(table.columns, "top_kernel", &Column::name);
      if (name == table.columns.end()) continue;
      for (std::size_t row = 0; row < table.rows.size(); ++row) {
        names.push_back(fmt::format("{}tile{}x{}", ends, row, ends));
        table.rows[row][static_cast<std::size_t>(name - table.columns.begin())] = names.back();
      }
    }
  }
  ASSERT_GT(names.size(), 1u);
  const std::string page = study_page(report, Json::object(), Format::kMarkdown, "charts");
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
  set_noise("cells[size small; mode forward; ops fused]", 80, 0.15);
  const Answer doubtful = of("pass-times");
  ASSERT_EQ(doubtful.worst.size(), 1u);
  EXPECT_THAT(rests_on(doubtful), ::testing::EndsWith(fmt::format(" (noisy: cells row {})",
                                                                  doubtful.worst[0].row + 1)));
}

}  // namespace
}  // namespace tracestep
