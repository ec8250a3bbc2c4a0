// The checks of rows beside others: silent on rows that fit together, loud when they do not.
#include <gtest/gtest.h>

#include "lab/measure/sound_row.h"
#include "lab/measure/validity.h"

namespace tracestep {
namespace {

using testing::kSoundFlops;
using testing::list;
using testing::sound;
using Codes = std::vector<std::string>;

// The sound row with another value of a field and other samples around `ms`, far within 1 %.
Json timed(const char* field, const Json& value, double ms) {
  Json row = sound();
  row[field] = value;
  std::vector<double> samples;
  for (int i = 0; i < 8; ++i) samples.push_back(ms * (1 + 0.0005 * i));
  row["samples_ms"] = list(samples);
  row["median_ms"] = samples[3];
  return row;
}

// The codes of each row, judged beside the others.
std::vector<Codes> codes_together(const std::vector<Json>& rows) {
  std::vector<ResultRow> read;
  for (const Json& row : rows) read.emplace_back(row);
  std::vector<Codes> out(rows.size());
  for (const RowVerdict& v : judge_together(read)) out[v.row].push_back(v.verdict.code);
  return out;
}

TEST(ValidityPairsTest, APartThatTakesLongerThanItsWholeMakesBothInvalid) {
  const Codes broken{"part_over_whole"};
  for (const auto& [part, part_ms, whole, whole_ms] :
       {std::tuple{"forward-backward", 63.4, "step", 43.8},
        {"forward-backward", 208.9, "step", 62.9},
        {"inference", 786.8, "forward", 370.1},
        {"inference", 90.0, "step", 80.0}}) {
    const std::vector<Json> rows{timed("mode", part, part_ms), timed("mode", whole, whole_ms)};
    EXPECT_EQ(codes_together(rows), (std::vector{broken, broken})) << part << " " << whole;
    const auto found = judge_together(std::vector{ResultRow(rows[0]), ResultRow(rows[1])});
    ASSERT_EQ(found.size(), 2u);
    EXPECT_EQ(found[0].verdict.severity, Severity::kInvalid);
    EXPECT_NE(found[0].verdict.text.find(whole), std::string::npos) << found[0].verdict.text;
    EXPECT_NE(found[1].verdict.text.find(part), std::string::npos) << found[1].verdict.text;
  }
}

TEST(ValidityPairsTest, APartOfAnotherTableWasMeasuredApart) {
  Json part = timed("mode", "forward-backward", 90.0), whole = timed("mode", "step", 72.3);
  part["table"] = "time";
  whole["table"] = "ways";
  const Codes apart{"measured_apart"};
  EXPECT_EQ(codes_together({part, whole}), (std::vector{apart, apart}));
  const auto found = judge_together(std::vector{ResultRow(part), ResultRow(whole)});
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].verdict.severity, Severity::kDoubt);
  EXPECT_NE(found[0].verdict.text.find("in the table ways"), std::string::npos)
      << found[0].verdict.text;
  whole["table"] = "time";
  EXPECT_EQ(codes_together({part, whole}), std::vector<Codes>(2, Codes{"part_over_whole"}));
}

TEST(ValidityPairsTest, BesideOtherProgramsAContradictionIsADoubt) {
  Json part = timed("mode", "forward-backward", 90.0);
  part["others_cores"] = 1.2;
  const auto found =
      judge_together(std::vector{ResultRow(part), ResultRow(timed("mode", "step", 72.3))});
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].verdict.code, "part_over_whole");
  for (const RowVerdict& v : found) EXPECT_EQ(v.verdict.severity, Severity::kDoubt);
}

TEST(ValidityPairsTest, AModeWithKernelsOfItsOwnIsNoPart) {
  Json part = timed("mode", "forward-backward", 65.9), whole = timed("mode", "step", 56.0);
  part["launches"] = 219;
  whole["launches"] = 172;
  EXPECT_EQ(codes_together({part, whole}), std::vector<Codes>(2));
  part["launches"] = 172;
  EXPECT_EQ(codes_together({part, whole}), std::vector<Codes>(2, Codes{"part_over_whole"}));
}

TEST(ValidityPairsTest, APartMayTakeAsLongAsItsWholeWithinTheNoise) {
  const std::vector<Codes> none(2);
  // Above by less than two rows differ by anyway.
  EXPECT_EQ(codes_together({timed("mode", "inference", 103), timed("mode", "forward", 100)}), none);
  // Far above, but the samples reach as far down.
  Json wide = timed("mode", "inference", 120);
  wide["samples_ms"] = list({95, 97, 99, 119, 121, 140, 150, 160});
  EXPECT_EQ(codes_together({wide, timed("mode", "forward", 100)}), none);
  // The rows are of different cells.
  Json longer = timed("mode", "inference", 200);
  longer["vocab"] = 256;
  EXPECT_EQ(codes_together({longer, timed("mode", "forward", 100)}), none);
  EXPECT_EQ(codes_together({timed("mode", "inference", 90), timed("mode", "forward", 100)}), none);
}

TEST(ValidityPairsTest, FusedOpsTakeNoLongerThanTheirParts) {
  const Codes broken{"fused_over_primitive"};
  EXPECT_EQ(codes_together({timed("ops", "fused", 150), timed("ops", "primitive", 100)}),
            (std::vector{broken, broken}));
  EXPECT_EQ(codes_together({timed("ops", "fused", 100), timed("ops", "primitive", 150)}),
            std::vector<Codes>(2));
}

// Two steps each, as those that are recorded, cannot contradict each other beyond noise.
TEST(ValidityPairsTest, WhatHasNoIntervalConvictsNobody) {
  Json fused = timed("ops", "fused", 150), primitive = timed("ops", "primitive", 100);
  const auto severity = [&] {
    const std::vector<ResultRow> rows = {ResultRow(fused), ResultRow(primitive)};
    return judge_together(rows)[0].verdict.severity;
  };
  EXPECT_EQ(severity(), Severity::kInvalid);
  fused["samples_ms"] = list({149, 151});
  primitive["samples_ms"] = list({99, 101});
  EXPECT_EQ(severity(), Severity::kDoubt);
}

// The machine may have changed between two tables, so only rows of one of them convict each other.
TEST(ValidityPairsTest, RowsOfOtherTablesConvictNobody) {
  Json fused = timed("ops", "fused", 150), primitive = timed("ops", "primitive", 100);
  Json more = timed("context", 256, 40), less = timed("context", 128, 100);
  more["flops"] = static_cast<std::int64_t>(2 * kSoundFlops);
  fused["table"] = more["table"] = "time";
  primitive["table"] = less["table"] = "ways";
  EXPECT_EQ(codes_together({fused, primitive}), std::vector<Codes>(2));
  EXPECT_EQ(codes_together({more, less}), std::vector<Codes>(2));
  primitive["table"] = less["table"] = "time";
  EXPECT_EQ(codes_together({fused, primitive})[0], Codes{"fused_over_primitive"});
  EXPECT_EQ(codes_together({more, less})[0], Codes{"more_work_in_less_time"});
}

TEST(ValidityPairsTest, MoreWorkInLessTimeMeansSwappedLabels) {
  Json more = timed("context", 256, 40);
  more["flops"] = static_cast<std::int64_t>(2 * kSoundFlops);
  EXPECT_EQ(codes_together({more, timed("context", 128, 100)}),
            (std::vector<Codes>{{"more_work_in_less_time"}, {}}));
}

TEST(ValidityPairsTest, OneCellMeasuredTwiceAgreesOrBothSaySo) {
  Json here = timed("table", "time", 43.8), there = timed("table", "scaling", 122.3);
  const Codes apart{"measured_apart"};
  EXPECT_EQ(codes_together({here, there}), (std::vector{apart, apart}));
  const auto found = judge_together(std::vector{ResultRow(here), ResultRow(there)});
  for (const RowVerdict& v : found) {
    EXPECT_NE(v.verdict.text.find("43.87 ms in the table time"), std::string::npos)
        << v.verdict.text;
    EXPECT_NE(v.verdict.text.find("in the table scaling"), std::string::npos) << v.verdict.text;
  }
  EXPECT_EQ(codes_together({here, timed("table", "scaling", 44.5)}), std::vector<Codes>(2));
  there["vocab"] = 256;  // another model of the same size
  EXPECT_EQ(codes_together({here, there}), std::vector<Codes>(2));
}

TEST(ValidityPairsTest, ModelsOfOnesOwnAreToldApartByTheirSizes) {
  Json narrow = timed("size", "custom", 43.8), wide = timed("size", "custom", 122.3);
  narrow["cell"] = Json::Object{{"d_model", 32}};
  wide["cell"] = Json::Object{{"d_model", 64}};
  EXPECT_EQ(codes_together({narrow, wide}), std::vector<Codes>(2));
  wide["cell"] = narrow["cell"];
  EXPECT_EQ(codes_together({narrow, wide})[0], Codes{"measured_apart"});
}

TEST(ValidityPairsTest, ABackwardOfManyForwardsIsACollapse) {
  Json step = sound(), forward = sound();
  forward["mode"] = "forward";
  forward["flops"] = static_cast<std::int64_t>(kSoundFlops / 3);
  forward["samples_ms"] = list({33, 33, 33});
  forward["median_ms"] = 33.0;
  step["median_ms"] = 6200.0;  // 186 forwards
  step["samples_ms"] = list({6200, 6200, 6200});
  const std::vector<ResultRow> rows{ResultRow(forward), ResultRow(step)};
  const auto found = judge_together(rows);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].row, 1u);
  EXPECT_EQ(found[0].verdict.code, "collapsed_speed");
}

}  // namespace
}  // namespace tracestep
