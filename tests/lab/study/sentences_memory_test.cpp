// Sentences of memory, precision, attention and compiling that once said more than
// their rows: each is fed the rows that it outran.
#include "lab/study/sentences_fixture.h"

namespace tracestep {
namespace {

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

TEST_F(SentencesTest, GrowthIsCalledFourfoldOnlyWhereItIs) {
  const auto growth = [&](double ms) {  // from 2 ms
    set("attention", {{"context", 128}, {"saved", "weights"}}, "forward_samples_ms",
        Json::Array(8, Json(ms)));
    return text_of("attention-times");
  };
  EXPECT_THAT(growth(8.0), HasSubstr("about four times"));
  EXPECT_THAT(growth(6.4), HasSubstr("less than T² work would take"));
  EXPECT_THAT(growth(10.0), HasSubstr("more than the four times"));
  EXPECT_THAT(growth(6.4), HasSubstr("would take: something else still counts."));
  set("attention", {{"context", 128}, {"saved", "weights"}}, "verdict", "doubt: unsteady");
  EXPECT_THAT(growth(6.4), HasSubstr("less than T² work would take. "));
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

TEST_F(SentencesTest, WhatComputingAgainCostsIsCountedAndTimedWhereTimesAre) {
  const auto counted = [](const std::string& text) {
    return text.substr(text.find("Cheapest to compute again (of operations"));
  };
  const std::string before = text_of("saved-operations");
  EXPECT_THAT(before, HasSubstr("Cheapest to compute again for its bytes, by time, is "));
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

// Attention at the longest context that was compiled, where forward then takes 10 ms.
class AttentionSentencesTest : public SentencesTest {
 protected:
  AttentionSentencesTest() {
    const Table& ways = table_like("attention_ways");
    for (const auto& row : ways.rows) {
      context_ = std::max(context_, row[column(ways, "context")].as_int());
      width_ = row[column(ways, "width")].as_int();
    }
    take("attention_ways", {{"ops", "fused"}, {"executor", "compiled"}}, 10.0);
  }
  // The answer's part about forward, where it takes so many ms with composite kernels in the
  // table of ways, and in that of attention alone.
  std::string forward(double beside_compiled, double alone) {
    take("attention_ways", {{"ops", "fused"}, {"executor", "eager"}}, beside_compiled);
    take("attention", {{"attention", "naive"}, {"saved", "weights"}, {"width", width_}}, alone);
    return text_of("compiled-attention").substr(0, text_of("compiled-attention").find("Its back"));
  }

 private:
  void take(const char* table, Evidence::Where where, double ms) {
    where.emplace_back("context", context_);
    set(table, where, "forward_samples_ms", Json::Array(8, Json(ms)));
  }

  std::int64_t context_ = 0, width_ = 0;
};

TEST_F(AttentionSentencesTest, CompiledIsFasterOnlyBeyondWhatTheTablesCallTheSame) {
  EXPECT_THAT(forward(10.1, 10.1), HasSubstr("takes, within 2.0 %, as long as composite kernels"));
  EXPECT_THAT(forward(10.3, 10.3), HasSubstr("is 1.030 times as fast as composite kernels"));
}

TEST_F(AttentionSentencesTest, CompiledIsFasterOnlyWhereOtherTimesAgree) {
  EXPECT_THAT(forward(12.0, 12.1), HasSubstr("is 1.20 times as fast as composite kernels"));
  const std::string denied = forward(12.0, 9.9);
  EXPECT_THAT(denied, HasSubstr("is not apart beyond noise from composite kernels"));
  EXPECT_THAT(denied, HasSubstr("At another time in this study that takes 9.900 ms"));
  EXPECT_THAT(testing::wrong_claims(of("compiled-attention").text, tables_), ::testing::IsEmpty());
}

TEST_F(SentencesTest, RungsThatLoseBeyondNoiseAreNamed) {
  const Table& ladder = table_like("ladder");
  for (std::size_t row = 1; row < ladder.rows.size(); ++row) {
    const Evidence::Where rung = {{"rung", ladder.rows[row][0]}};
    const bool loses = ladder.rows[row][0] == Json("swiglu");
    set("ladder", rung, "changes", "program");
    set("ladder", rung, "rung_verdict", "same");
    set("ladder", rung, "rung_speedup", loses ? 0.988 : 1.0);
    set("ladder", rung, "rung_low", loses ? 0.985 : 0.99);
    set("ladder", rung, "rung_high", loses ? 0.991 : 1.01);
  }
  const Answer lost = of("ladder");
  EXPECT_THAT(
      lost.text.words(),
      HasSubstr("gains beyond noise, with an interval that passes 2.0 %. Beyond noise these "
                "lose against the rung before them: swiglu (0.988 times as fast). "));
  EXPECT_THAT(testing::wrong_claims(lost.text, tables_), ::testing::IsEmpty());
  set("ladder", {{"rung", "rope"}}, "rung_verdict", "slightly faster");
  set("ladder", {{"rung", "rope"}}, "rung_speedup", 1.01);
  set("ladder", {{"rung", "rope"}}, "rung_low", 1.006);
  set("ladder", {{"rung", "rope"}}, "rung_high", 1.012);
  const Answer gained = of("ladder");
  EXPECT_THAT(gained.text.words(),
              HasSubstr("swiglu (0.988 times as fast). Beyond noise, with an interval that does "
                        "not pass 2.0 %, these gain: rope (1.010 times). "));
  EXPECT_THAT(testing::wrong_claims(gained.text, tables_), ::testing::IsEmpty());
}

TEST_F(SentencesTest, PeaksAreAboutTheSameByOneRule) {
  Table& grid = table_like("memory_grid");
  for (auto& row : grid.rows) {
    if (row[column(grid, "precision")] == Json("bf16")) {
      row[column(grid, "versus_fp32_percent")] = 0.3;
    }
  }
  const Answer peaks = of("low-precision-memory");
  EXPECT_THAT(peaks.text.words(), HasSubstr("It takes about the same at each of these."));
  EXPECT_THAT(testing::wrong_claims(peaks.text, tables_), ::testing::IsEmpty());
}

TEST_F(SentencesTest, TheMemoryOfADeviceIsNotSaidToBeTheRuns) {
  const std::string text = text_of("static-bytes");
  EXPECT_THAT(text, HasSubstr("than this device's memory or the limit set for it, "));
  EXPECT_THAT(text, HasSubstr("of which a driver may hold a part"));
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

TEST_F(SentencesTest, BytesThatWereAskedForAreToldApartFromThoseReserved) {
  EXPECT_THAT(text_of("attribution"), HasSubstr("the same to the byte, of what was asked of it ("));
  EXPECT_THAT(text_of("attribution"), HasSubstr(" were reserved then)"));
}

TEST_F(SentencesTest, GradientsAreNotThereBeforeActivations) {
  const std::string text = text_of("static-bytes");
  EXPECT_THAT(text, HasSubstr("take 12 B for each parameter together"));
  EXPECT_THAT(text, HasSubstr("With its gradient that is 16 B"));
  EXPECT_THAT(text, HasSubstr("when backward ends"));
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
  const std::string float16 = text.substr(0, text.find("In bfloat16"));
  EXPECT_THAT(float16, HasSubstr("off by over 4 roundings: sum of squares at inputs of 1, and"));
  EXPECT_THAT(float16, HasSubstr(", at inputs of 1000, by squares at inputs of 1000, "));
  EXPECT_THAT(text, HasSubstr("lost to overflow or to zero, at inputs of 1000"));
  EXPECT_THAT(text, HasSubstr("numbers up to 255.875 are finite"));
}

TEST_F(SentencesTest, AnotherStartThatTakesMoreFindsNothing) {
  const Evidence::Where step = {{"mode", "step"}, {"ops", "fused"}, {"executor", "compiled"}};
  const auto all_starts = [&](const char* executor, double first, double second) {
    Table& ways = table_like("ways");
    for (auto& row : ways.rows) {
      if (row[column(ways, "executor")] != Json(executor)) continue;
      row[column(ways, "first_start_ms")] = first;
      row[column(ways, "second_start_ms")] = second;
    }
  };
  all_starts("eager", 110.0, 100.0);
  all_starts("compiled", 400.0, 390.0);
  set("ways", step, "first_start_ms", 400.0);
  set("ways", step, "second_start_ms", 300.0);
  EXPECT_THAT(text_of("compiled-start"),
              HasSubstr("it finds those that the one before it has kept"));
  set("ways", step, "second_start_ms", 431.0);
  EXPECT_THAT(text_of("compiled-start"), HasSubstr("swing widest in tiny ("));
  EXPECT_THAT(text_of("compiled-start"), HasSubstr("gains less than that, so nothing shows"));
  EXPECT_THAT(text_of("compiled-start"), Not(HasSubstr("compiled rows the other start")));
  // A gain that eager starts have as well, which keep nothing.
  set("ways", step, "second_start_ms", 370.0);
  EXPECT_THAT(text_of("compiled-start"), Not(HasSubstr("finds those")));
  EXPECT_THAT(text_of("compiled-start"), HasSubstr("compiled rows the other start gains time."));
  // Eager starts of another row differ by more.
  set("ways", step, "second_start_ms", 300.0);
  set("ways", {{"mode", "forward"}, {"executor", "eager"}}, "second_start_ms", 200.0);
  const Answer starts = of("compiled-start");
  EXPECT_THAT(starts.text.words(), HasSubstr("swing widest in tiny (forward, "));
  EXPECT_THAT(starts.text.words(), HasSubstr("gains less than that, so nothing shows"));
  EXPECT_THAT(testing::wrong_claims(starts.text, tables_), ::testing::IsEmpty());
}

TEST_F(SentencesTest, FactorsOfAFormThatWasHeldBackAreSaidToBeTooSmall) {
  EXPECT_THAT(text_of("attention-cure"), Not(HasSubstr("too small")));
  Table& attention = *std::ranges::find(tables_, "attention", &Table::name);
  for (auto& row : attention.rows) {
    if (row[column(attention, "attention")] == Json("flash")) {
      row[column(attention, "verdict")] = "doubt: throttled";
    }
  }
  const Answer cure = of("attention-cure");
  EXPECT_THAT(cure.text.words(), HasSubstr("is doubt: throttled: at full clocks"));
  EXPECT_THAT(testing::wrong_claims(cure.text, tables_), ::testing::IsEmpty());
  for (auto& row : attention.rows) row[column(attention, "verdict")] = "doubt: throttled";
  EXPECT_THAT(text_of("attention-cure"), Not(HasSubstr("too small")));  // both: either way
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

TEST_F(SentencesTest, ASumStopsAfterSomeOfItsAdditions) {
  set("accumulation", {{"experiment", "5: bf16 + bf16"}}, "count", 1000);
  EXPECT_THAT(text_of("stalls"), HasSubstr(" of 1000 additions of "));
}

TEST_F(SentencesTest, OperationsThatFreeAsMuchForTheirWorkAreAllNamed) {
  Table& saved = table_like("saved_by_op@");
  const auto freed = column(saved, "freed_per_work"), share = column(saved, "share_percent");
  std::size_t priced = 0;
  for (auto& row : saved.rows) {
    if (row[freed].is_null()) continue;
    row[freed] = ++priced <= 2 ? 100.0 : 1.0;
    row[share] = 5.0;
  }
  ASSERT_GT(priced, 2u);
  const Answer answer = of("saved-operations");
  EXPECT_THAT(answer.text.words(), HasSubstr(" About as cheap by that count: "));
  EXPECT_THAT(testing::wrong_claims(answer.text, tables_), ::testing::IsEmpty());
}

TEST_F(SentencesTest, ATieBehindTheLargestOperationsIsSaid) {
  Table& saved = table_like("saved_by_op@");
  std::int64_t size = 1000;
  for (auto& row : saved.rows) {
    if (row[column(saved, "component")] == Json("total")) continue;
    size = std::max<std::int64_t>(size - 100, 500);  // the fifth and all others alike
    row[column(saved, "bytes")] = size;
  }
  const Answer tied = of("saved-operations");
  EXPECT_THAT(tied.text.words(), HasSubstr("As much as the last of these save "));
  EXPECT_THAT(testing::wrong_claims(tied.text, tables_), ::testing::IsEmpty());
}

TEST_F(SentencesTest, LessMemoryOfInferenceIsNotLeftOut) {
  EXPECT_THAT(text_of("low-precision-memory"), HasSubstr("inference 64 "));
  EXPECT_THAT(text_of("low-precision-memory"), HasSubstr("What is saved for backward changes by "));
}

TEST_F(SentencesTest, TheNormsNoteHasTheFiguresOfItsRows) {
  const auto norms = std::ranges::find(tables_, "norms", &Table::name);
  for (const char* format : {"f16", "bf16"}) {
    const double roundings = cell_of(tables_, "norms",
                                     {{"norm", "layer norm"},
                                      {"format", format},
                                      {"input_scale", 1.0},
                                      {"step", "sum of squares"}},
                                     "roundings")
                                 .as_double();
    EXPECT_GT(roundings, 4);  // what the table calls sensitive
    EXPECT_THAT(norms->notes.at(1), HasSubstr(fmt::format("{:.1f}", roundings)));
  }
}

}  // namespace
}  // namespace tracestep
