// Results of several runs as one.
#include "lab/compare/merge.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lab/measure/sound_row.h"
#include "lab/measure/validity.h"
#include "support/temp_folder.h"

namespace tracestep {
namespace {

using ::testing::ElementsAre;

PartResult part(const std::string& label, const std::string& tables, const std::string& gpu = "A",
                const std::string& schema = "tracestep.x/1") {
  return {label + ".json", label,
          Json::parse(fmt::format(R"({{"schema":"{}","environment":{{"gpu":"{}"}},"rows":[],
                                      "tables":{{{}}}}})",
                                  schema, gpu, tables),
                      "test")};
}

std::vector<std::string> names(const Document& document) {
  std::vector<std::string> out;
  for (const Table& table : document.tables) out.push_back(table.name);
  return out;
}

TEST(MergeTest, TablesAreJoinedSharedOrApart) {
  const std::string same = R"(,"formats":{"rows":[{"bits":16}]})";
  const PartResult parts[] = {
      part("tiny",
           R"("cells":{"title":"T","columns":{"ms":{"unit":"ms","role":"part","part_of":"all_ms"}},
                     "rows":[{"size":"tiny","ms":1}],"notes":["n","of one"]},
                     "more":{"rows":[{"size":"tiny"}]},"kernels":{"rows":[{"op":"a"}]})" +
               same),
      part("small", R"("cells":{"title":"T","rows":[{"size":"small","ms":2.5}],"notes":["n"]},
                      "more":{"rows":[{"size":"small"}]},"kernels":{"rows":[{"op":"b"}]})" +
                        same)};
  const Document all = merged(parts, std::vector<std::string>{"size"});
  EXPECT_THAT(names(all), ElementsAre("cells", "more", "kernels@tiny", "kernels@small", "formats"));
  const Table& cells = all.tables[0];
  EXPECT_EQ(cells.title, "T");
  EXPECT_EQ(cells.rows.size(), 2u);
  EXPECT_EQ(cells.rows[1][0], Json("small"));
  EXPECT_EQ(cells.columns[1].unit, "ms");
  EXPECT_EQ(cells.columns[1].role, ColumnRole::kPart);
  EXPECT_EQ(cells.columns[1].whole, "all_ms");
  EXPECT_EQ(cells.columns[1].kind, ColumnKind::kReal) << "whole in one part, not in the other";
  EXPECT_THAT(cells.notes, ElementsAre("n", "tiny: of one"));
  EXPECT_EQ(all.tables[1].rows.size(), 2u);
  EXPECT_EQ(all.tables[4].rows.size(), 1u);
}

TEST(MergeTest, OnePartIsWhatItWas) {
  const PartResult one[] = {part("", R"("cells":{"rows":[{"a":1}]},"kernels":{"rows":[{"b":2}]})")};
  EXPECT_THAT(names(merged(one, std::vector<std::string>{"size"})),
              ElementsAre("cells", "kernels"));
}

TEST(MergeTest, AnotherMachineIsSaid) {
  const std::string rows = R"("cells":{"rows":[{"a":1}]})";
  const PartResult parts[] = {part("x", rows), part("y", rows, "B")};
  EXPECT_THAT(merged(parts, {}).tables[0].notes,
              ElementsAre("y ran elsewhere: gpu \"A\" and \"B\""));
}

PartResult timed(const char* command, const char* mode, double ms,
                 const Json& environment = Json::object()) {
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
  const Json verdict = Json::Object{{"description", verdict_column().description}};
  const Json document = Json::Object{{"schema", fmt::format("tracestep.{}/1", command)},
                                     {"environment", environment},
                                     {"columns", Json::Object{{"verdict", verdict}}},
                                     {"rows", Json::Array{row}}};
  return {mode, mode, document};
}

TEST(MergeTest, RowsAreJudgedBesideEachOther) {
  // A step that takes less time than its own forward and backward.
  const PartResult parts[] = {timed("bench", "forward-backward", 143.4),
                              timed("bench", "step", 93.8)};
  const std::vector<std::string> divided{"mode"};
  const Table table = merged(parts, divided).tables.at(0);
  EXPECT_EQ(table.name, "bench");
  for (const auto& row : table.rows) {
    EXPECT_EQ(row.back().dump(), "\"doubt: measured_apart\"") << "tasks ran at different times";
  }
  const Table alone = merged(std::span(parts).first(1), divided).tables.at(0);
  EXPECT_EQ(alone.rows[0].back().dump(), "\"ok\"");
}

TEST(MergeTest, ARowIsJudgedByTheMachineItWasMeasuredOn) {
  const auto node = [](std::int64_t bytes) {
    return Json(Json::Object{{"memory_limit_bytes", bytes}});
  };
  const PartResult parts[] = {timed("bench", "forward", 80, node(1000)),
                              timed("bench", "step", 100, node(std::int64_t{1} << 50))};
  const Table table = merged(parts, std::vector<std::string>{"mode"}).tables.at(0);
  EXPECT_TRUE(contains(table.rows[0].back().dump(), "host_spill"));
  EXPECT_EQ(table.rows[1].back().dump(), "\"ok\"");
}

TEST(MergeTest, RowsThatTheCheckerReadsInAnotherFormKeepTheirVerdicts) {
  const PartResult parts[] = {timed("attention", "forward", 90), timed("attention", "whole", 30)};
  const Table table = merged(parts, std::vector<std::string>{"mode"}).tables.at(0);
  for (const auto& row : table.rows) {
    EXPECT_EQ(row.back().dump(), "\"ok\"");
  }
}

TEST(MergeTest, AnotherCommandIsRefused) {
  const std::string rows = R"("cells":{"rows":[{"a":1}]})";
  const PartResult parts[] = {part("x", rows), part("y", rows, "A", "tracestep.z/1")};
  EXPECT_TRUE(contains(message_of(ErrorCode::kInput, [&] { merged(parts, {}); }),
                       "[y.json] its schema is tracestep.z/1, not tracestep.x/1"));
  const PartResult columns[] = {part("x", rows), part("y", R"("cells":{"rows":[{"b":1}]})")};
  EXPECT_TRUE(contains(message_of(ErrorCode::kInput, [&] { merged(columns, {}); }),
                       "cells has other columns"));
}

}  // namespace
}  // namespace tracestep
