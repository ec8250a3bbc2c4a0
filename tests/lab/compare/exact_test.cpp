// Bytes, launches and errors, and the parts of a step that name what changed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "lab/compare/compare.h"
#include "lab/compare/exact.h"
#include "lab/compare/interleaved.h"
#include "support/temp_folder.h"

namespace tracestep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Json parsed(const std::string& text) {
  return Json::parse(text, "test");
}

// A result of `profile`: two passes, and the kernels of one component.
Json profile(int launches, int kernel_launches, double ms) {
  return parsed(fmt::format(
      R"({{"schema":"tracestep.profile/1","environment":{{}},"rows":[
        {{"size":"tiny","context":128,"mode":"step","precision":"fp32","ops":"fused",
          "attention":"naive","pass":"forward","status":"ok","launches":{0}}}],
      "tables":{{"passes":{{"rows":[]}},"matrix":{{"rows":[
        {{"component":"attn.rope","phase":"forward","op":"rope","kernel":"rope f32",
          "launches":{1},"ms":{2},"flops":10,"bytes":20}},
        {{"component":"ffn.w1","phase":"forward","op":"matmul","kernel":"matmul f32",
          "launches":3,"ms":1.0,"flops":10,"bytes":20}}]}},
      "attention":{{"rows":[{{"phase":"forward","part":"scores","launches":4}}]}}}}}})",
      launches, kernel_launches, ms));
}

ComparisonReport compared(const Json& a, const Json& b, double percent = 0) {
  return compare_results(result_of(a, "a.json"), result_of(b, "b.json"), {.fail_percent = percent});
}

std::vector<std::string> column(const Table& table, std::string_view name) {
  const auto found = std::ranges::find(table.columns, name, &Column::name);
  std::vector<std::string> out;
  for (const auto& row : table.rows) {
    const Json& cell = row[static_cast<std::size_t>(found - table.columns.begin())];
    out.push_back(cell.is_string() ? cell.as_string() : cell.dump());
  }
  return out;
}

TEST(ExactTest, TheKernelBehindMoreLaunchesIsNamed) {
  const ComparisonReport report = compared(profile(40, 4, 0.5), profile(44, 8, 0.5));
  EXPECT_THAT(
      report.regressions,
      ElementsAre("tiny context 128 step fp32 fused forward: launches 40 → 44 (+4); most in "
                  "attn.rope forward rope rope f32 +4"));
  EXPECT_TRUE(report.undecided.empty());
  EXPECT_THAT(column(report.exact, "table"), ElementsAre("passes", "matrix"));
  EXPECT_THAT(column(report.exact, "verdict"), ElementsAre("more", "more"));
  EXPECT_THAT(column(report.exact, "percent"), ElementsAre("10.0", "100.0"));
}

TEST(ExactTest, FewerLaunchesAndOtherMillisecondsAreNoRegression) {
  const ComparisonReport report = compared(profile(44, 8, 0.5), profile(40, 4, 9.0));
  EXPECT_TRUE(report.regressions.empty());
  EXPECT_TRUE(report.undecided.empty());
  EXPECT_THAT(column(report.exact, "verdict"), ElementsAre("less", "less", "not judged"));
  EXPECT_THAT(report.exact.notes.back(), HasSubstr("where to look"));
  const ComparisonReport same = compared(profile(44, 8, 0.5), profile(44, 8, 0.5));
  EXPECT_TRUE(same.exact.rows.empty());
  EXPECT_THAT(same.exact.notes.front(), HasSubstr("7 figures were compared exactly: all"));
}

TEST(ExactTest, ThePercentageAppliesToExactFiguresToo) {
  EXPECT_TRUE(compared(profile(40, 4, 1), profile(44, 8, 1), 10).regressions.empty());
  EXPECT_FALSE(compared(profile(40, 4, 1), profile(44, 8, 1), 9.9).regressions.empty());
}

// A result of `memory`: one cell with its buffers and what is saved.
Json memory(std::int64_t peak, std::int64_t saved, const std::string& buffers,
            const std::string& saved_by_op) {
  return parsed(fmt::format(
      R"({{"schema":"tracestep.memory/2","environment":{{}},"rows":[
        {{"size":"tiny","context":8,"batch":1,"vocab":50,"mode":"step","precision":"fp32",
          "ops":"fused","attention":"naive","status":"ok","peak_bytes":{},"saved_bytes":{},
          "weight_cast_bytes":0}}],
      "tables":{{"memory":{{"rows":[]}},"buffers":{{"rows":[{}]}},
        "saved_by_op":{{"rows":[{}]}}}}}})",
      peak, saved, buffers, saved_by_op));
}

std::string buffer(const char* path, const char* op, int bytes) {
  return fmt::format(
      R"({{"path":"{}","op":"{}","category":"temporary","phase":"forward","predicted_bytes":{}}})",
      path, op, bytes);
}

TEST(ExactTest, BuffersOfOneNameAreAddedUpAndWhatIsSavedHasItsOwnTable) {
  const Json a = memory(1000, 64, buffer("w1", "matmul", 512) + "," + buffer("w1", "matmul", 512),
                        R"({"component":"ffn","op":"mul","bytes":64,"values":1})");
  const Json b = memory(2048, 128,
                        buffer("w1", "matmul", 512) + "," + buffer("w1", "matmul", 512) + "," +
                            buffer("w1", "matmul", 1024) + "," + buffer("w2", "copy", 24),
                        R"({"component":"ffn","op":"mul","bytes":128,"values":2},
                           {"component":"total","op":null,"bytes":128,"values":2})");
  const ComparisonReport report = compared(a, b);
  EXPECT_THAT(
      report.regressions,
      ElementsAre("tiny context 8 batch 1 step fp32 fused: peak_bytes 1000 B → 2.00 KiB (+1.02 "
                  "KiB); most in w1 matmul temporary forward +1.00 KiB, w2 copy temporary forward "
                  "+24 B",
                  "tiny context 8 batch 1 step fp32 fused: saved_bytes 64 B → 128 B (+64 B); most "
                  "in ffn mul +64 B"));
}

TEST(ExactTest, AFigureThatOnlyOneSideHasCannotBeJudged) {
  Json b = memory(1000, 64, buffer("w1", "matmul", 512), "");
  Json row = b.at("rows").items()[0];
  row["peak_bytes"] = Json();
  b["rows"] = Json::Array{row};
  const ComparisonReport report = compared(memory(1000, 64, buffer("w1", "matmul", 512), ""), b);
  ASSERT_EQ(report.undecided.size(), 1u);
  EXPECT_THAT(report.undecided[0], HasSubstr("peak_bytes is only in A"));
}

TEST(ExactTest, ErrorsOfAStudyAreGatedAndItsPartsMeetByTheirLabels) {
  const auto study = [](double error, int launches) {
    return parsed(fmt::format(
        R"({{"schema":"tracestep.study/2","environment":{{}},"rows":[],"tables":{{
          "cells":{{"rows":[]}},
          "steps":{{"rows":[{{"size":"tiny","context":32,"mode":"step","precision":"bf16",
            "ops":"fused","attention":"naive","status":"ok","peak_bytes":5,"loss_error":{},
            "logits_error":0.1,"gradient_error":0.2}}]}},
          "matrix@tiny 32":{{"rows":[{{"component":"w1","phase":"forward","op":"matmul",
            "kernel":"k","launches":{},"flops":1,"bytes":1}}]}},
          "answers":{{"rows":[{{"answer":"words"}}]}}}}}})",
        error, launches));
  };
  const ComparisonReport report = compared(study(0.01, 3), study(0.02, 4), 50);
  EXPECT_THAT(report.regressions,
              ElementsAre("tiny context 32 step bf16 fused: loss_error 0.01 → 0.02 (+0.01)"));
  EXPECT_THAT(column(report.exact, "row"),
              ElementsAre("tiny context 32 step bf16 fused", "w1 forward matmul k"));
}

TEST(ResultFileTest, TablesOfCommaSeparatedValuesAreKnownByTheirColumns) {
  const TempFolder folder;
  folder.write("a.csv",
               "size,context,mode,precision,status,samples_ms,process_samples\n"
               "tiny,8,step,fp32,ok,\"[1,2,3]\",\"[2,1]\"\n\n"
               "component,phase,op,kernel,launches,flops,bytes\nw1,forward,matmul,k,3,1,1\n");
  const ResultFile file = read_result(folder / "a.csv");
  ASSERT_EQ(file.tables.size(), 2u);
  EXPECT_EQ(file.tables[0].name, "cells");
  EXPECT_EQ(file.tables[0].rows[0].numbers("process_samples"), (std::vector<double>{2, 1}));
  EXPECT_EQ(file.tables[1].name, "matrix");
  EXPECT_EQ(file.cells().size(), 1u);
  folder.write("b.csv", "a,b\n1,2\n");
  EXPECT_THROW(read_result(folder / "b.csv"), Error);
}

TEST(ResultFileTest, DamagedCommaSeparatedValuesAreNamedByLineAndColumn) {
  const TempFolder folder;
  const std::string head = "size,context,mode,status,samples_ms\n";
  const auto refused = [&](const std::string& text) {
    folder.write("h.csv", text);
    return message_of(ErrorCode::kInput, [&] { read_result(folder / "h.csv"); });
  };
  EXPECT_EQ(refused("size,context,mode,context\ntiny,8,step,8\n"),
            "[h.csv] line 1, column 4: \"context\" is the name of column 2 too");
  for (const char* number : {"nan", "inf", "-inf", "1e999", "99999999999999999999999"}) {
    EXPECT_EQ(refused(head + fmt::format("tiny,{},step,ok,1\n", number)),
              fmt::format("[h.csv] line 2, column 2 (context): {} is no number that a result has",
                          number));
  }
  EXPECT_THAT(refused(head + "tiny,8,step,ok,\"[1,nan]\"\n"), HasSubstr("column 5 (samples_ms)"));
  EXPECT_THAT(refused(head + "tiny,8,step,ok,\"[1,x,2]\"\n"), HasSubstr("x is no number"));
  EXPECT_EQ(refused(head + "tiny,8,step,ok,1\n\na,b\n1,2\n3\n"),
            "[h.csv] line 6, column 2: the row has 1 cells and its table 2 columns");
  EXPECT_EQ(refused(head + "tiny,8,step,ok,1,2\n"),
            "[h.csv] line 2, column 6: the row has 6 cells and its table 5 columns");
  EXPECT_THAT(refused("size,con\xfftext\n"),
              HasSubstr("line 1, column 2: bytes that are no UTF-8"));
  EXPECT_THAT(refused(head + std::string("tiny,\0,step,ok,1\n", 18)), HasSubstr("a NUL byte"));
}

TEST(ExactComparisonTest, WhereNothingWasComparedNothingIsTheSame) {
  EXPECT_THAT(ExactComparison().table().notes, ElementsAre("no figures were compared exactly"));
}

TEST(InterleavedTest, WhoRunsFirstInAPairIsTheTossOfACoin) {
  int of_b = 0, changes = 0, equal = 0;
  for (int i = 0; i < 1000; ++i) {
    of_b += is_b_first(i, 1) ? 1 : 0;
    changes += is_b_first(i, 1) != is_b_first(i + 1, 1) ? 1 : 0;
    equal += is_b_first(i, 1) == is_b_first(i, 2) ? 1 : 0;
  }
  for (int count : {of_b, changes, equal}) EXPECT_NEAR(count, 500, 60);  // four deviations
}

TEST(InterleavedTest, TheRowsOfARunsProcessesAreJoined) {
  const auto result = [](double ms, int rows) {
    Json out = parsed(R"({"schema":"tracestep.bench/1","environment":{},"rows":[]})");
    Json::Array list;
    for (int i = 0; i < rows; ++i) {
      list.push_back(parsed(fmt::format(R"({{"status":"ok","samples_ms":[{}]}})", ms)));
    }
    out["rows"] = Json(list);
    return out;
  };
  const Json joined = merged_result(std::vector<Json>{result(1, 2), result(3, 2)}, "x");
  ASSERT_EQ(joined.at("rows").size(), 2u);
  EXPECT_EQ(joined.at("rows").items()[1].at("samples_ms"), Json(Json::Array{1.0, 3.0}));
  EXPECT_EQ(joined.at("rows").items()[1].at("process_samples"), Json(Json::Array{1, 1}));
  EXPECT_THROW(merged_result(std::vector<Json>{result(1, 2), result(3, 1)}, "x"), Error);
}

}  // namespace
}  // namespace tracestep
