// Results as documents again.
#include "lab/compare/merge.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lab/measure/sound_row.h"
#include "lab/measure/validity.h"
#include "support/temp_folder.h"

namespace tracestep {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Document of_text(const std::string& tables) {
  const std::string text =
      R"({"schema":"tracestep.x/1","environment":{"gpu":"A"},"rows":[],"tables":{)" + tables + "}}";
  return document_of(Json::parse(text, "test"), "r.json");
}

TEST(MergeTest, AResultIsTheDocumentThatItWas) {
  const Document all = of_text(
      R"("cells":{"title":"T","columns":{"ms":{"unit":"ms","role":"part","part_of":"all_ms"}},
                  "rows":[{"size":"tiny","ms":1},{"size":"small","ms":2.5}],"notes":["n"]},
         "kernels":{"rows":[{"op":"a"}]})");
  EXPECT_EQ(all.schema, "tracestep.x/1");
  EXPECT_EQ(all.environment.at("gpu"), Json("A"));
  ASSERT_EQ(all.tables.size(), 2u);
  const Table& cells = all.tables[0];
  EXPECT_EQ(cells.name, "cells");
  EXPECT_EQ(cells.title, "T");
  EXPECT_EQ(cells.rows[1][0], Json("small"));
  EXPECT_EQ(cells.columns[1].unit, "ms");
  EXPECT_EQ(cells.columns[1].role, ColumnRole::kPart);
  EXPECT_EQ(cells.columns[1].whole, "all_ms");
  EXPECT_EQ(cells.columns[1].kind, ColumnKind::kReal) << "whole in one row, not in the other";
  EXPECT_THAT(cells.notes, ElementsAre("n"));
  EXPECT_EQ(all.tables[1].name, "kernels");
}

Json timed(const char* mode, double ms) {
  Json row = testing::sound();
  row["mode"] = mode;
  row["samples_ms"] = testing::list({ms, 1.001 * ms, 1.002 * ms, ms, ms, ms, ms, ms});
  row["median_ms"] = ms;
  row["wall_ms"] = ms;
  row["device_span_ms"] = 0.99 * ms;
  row["device_busy_ms"] = 0.99 * ms;
  row["instrumented_wall_ms"] = ms;
  row["tflops"] = testing::kSoundFlops / ms * 1e-9;
  row["tokens_per_s"] = 4 * 128 / ms * 1e3;
  row["verdict"] = "ok";
  return row;
}

Table table_of(const char* command, const std::vector<Json>& rows,
               const Json& environment = Json::object(), const Json& notes = Json::array()) {
  const Json verdict = Json::Object{{"description", verdict_column().description}};
  return document_of(Json(Json::Object{{"schema", fmt::format("tracestep.{}/1", command)},
                                       {"environment", environment},
                                       {"columns", Json::Object{{"verdict", verdict}}},
                                       {"notes", notes},
                                       {"rows", Json::Array(rows.begin(), rows.end())}}),
                     "r.json")
      .tables.at(0);
}

TEST(MergeTest, RowsOfBenchAreJudgedBesideEachOther) {
  // A step that takes less time than its own forward and backward.
  const std::vector<Json> rows{timed("forward-backward", 143.4), timed("step", 93.8)};
  const Table table = table_of("bench", rows);
  EXPECT_EQ(table.name, "bench");
  EXPECT_THAT(table.rows[1].back().dump(), HasSubstr("invalid: part_over_whole"));
  EXPECT_EQ(table_of("bench", {rows[0]}).rows[0].back().dump(), "\"ok\"");
  // The checker reads no other command's rows: those keep their verdicts.
  for (const auto& row : table_of("attention", rows).rows) {
    EXPECT_EQ(row.back().dump(), "\"ok\"");
  }
}

TEST(MergeTest, RowsAreJudgedByTheMachineTheyWereMeasuredOn) {
  const auto verdict = [](std::int64_t bytes) {
    const Json node = Json::Object{{"memory_limit_bytes", bytes}};
    return table_of("bench", {timed("step", 100)}, node).rows[0].back().dump();
  };
  EXPECT_THAT(verdict(1000), HasSubstr("host_spill"));
  EXPECT_EQ(verdict(std::int64_t{1} << 50), "\"ok\"");
}

TEST(MergeTest, NotesOfTheOldVerdictsAreReplaced) {
  const Json node = Json::Object{{"memory_limit_bytes", 1000}};
  const Table once = table_of("bench", {timed("forward", 80)}, node);
  ASSERT_FALSE(once.notes.empty());
  Json notes = Json::array();
  notes.push_back("of the user");
  for (const std::string& note : once.notes) notes.push_back(note);
  const Table again = table_of("bench", {timed("forward", 80)}, node, notes);
  EXPECT_EQ(again.notes.size(), once.notes.size() + 1);
  EXPECT_THAT(again.notes, Contains("of the user"));
}

TEST(MergeTest, MachinesThatDifferAreNamed) {
  const auto on = [](const char* gpu) { return Json(Json::Object{{"gpu", gpu}}); };
  EXPECT_EQ(other_machine(on("A"), on("B")), "gpu \"A\" and \"B\"");
  EXPECT_EQ(other_machine(on("A"), on("A")), "");
}

TEST(MergeTest, WhatIsNoResultIsRefused) {
  const Json nameless =
      Json::Object{{"schema", ""}, {"environment", Json::object()}, {"rows", Json::array()}};
  EXPECT_THAT(message_of(ErrorCode::kInput, [&] { document_of(nameless, "r.json"); }),
              HasSubstr("[r.json] it is no JSON result: there is no schema"));
}

}  // namespace
}  // namespace tracestep
