// The part of the study that shares one step among ranks: its forms, its bytes, and when it runs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "backends/comm/local/local_group.h"
#include "lab/study/study.h"
#include "ops/functions.h"
#include "run/parallel.h"
#include "session/devices.h"
#include "spec/parse_words.h"
#include "support/backends.h"

namespace tracestep {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;

std::unique_ptr<Device> cpu(const RunSpec&) {
  return testing::backend_named("cpu").make({.threads = 1});
}

class StudyOfRanksTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ops::register_all();
    register_device("cpu", cpu);
    register_group([](Device&, int ranks) { return make_local_group(ranks); });
    sizes_.models = {
        {.name = "tiny", .vocab = 32, .d_model = 16, .d_ff = 32, .layers = 2, .heads = 2}};
    sizes_.planned = {
        .name = "planned", .vocab = 64, .d_model = 32, .d_ff = 64, .layers = 3, .heads = 2};
    sizes_.planned_contexts = {8, 16};
    sizes_.shape = {.batch = 4, .context = 8};
    machine_.driver = &driver_;
    machine_.make_device = cpu;
    machine_.traits = cpu({})->traits();
    machine_.place.threads = 2;
  }

  // The sections that the part adds.
  std::vector<StudySection> run(const std::string& parallel, double seconds = 100) {
    sizes_.parallel = parse_parallel("--parallel", parallel);
    StudyContext context{.machine = machine_, .sizes = sizes_, .announce = [](const auto&) {}};
    context.deadline =
        std::chrono::steady_clock::now() + std::chrono::milliseconds(std::int64_t(1000 * seconds));
    plan_ranks(context);
    rank_part(context);
    return std::move(context.sections);
  }

  static std::vector<Json> column(const Table& table, std::string_view name) {
    const auto at = std::ranges::find(table.columns, name, &Column::name) - table.columns.begin();
    std::vector<Json> out;
    for (const auto& row : table.rows) out.push_back(row.at(static_cast<std::size_t>(at)));
    return out;
  }
  static std::vector<std::string> texts(const Table& table, std::string_view name) {
    std::vector<std::string> out;
    for (const Json& cell : column(table, name)) out.push_back(cell.as_string());
    return out;
  }

  Driver driver_;
  StudyMachine machine_;
  StudySizes sizes_;
};

// And sums alone are timed by size.
TEST_F(StudyOfRanksTest, EveryFormIsMeasuredAndEveryRankHasTheBytesThatWerePredicted) {
  const std::vector<StudySection> sections = run("dp=2");
  ASSERT_EQ(sections.size(), 1u);
  EXPECT_EQ(sections[0].tables.at(2).name, "planned_ranks");
  const Table& table = sections[0].tables.at(0);
  EXPECT_EQ(table.name, "ranks");
  EXPECT_THAT(texts(table, "parallel"),
              ElementsAre("none", "dp=2,bucket=tensor,overlap=off", "dp=2,bucket=all,overlap=off",
                          "dp=2,bucket=tensor", "dp=2,bucket=2KiB", "dp=2,bucket=7KiB", "dp=2",
                          "dp=2,shard=1", "dp=2,shard=2", "dp=2,shard=3"));
  EXPECT_THAT(texts(table, "form"), Contains("beside backward, four buckets"));
  for (const std::string& status : texts(table, "status")) EXPECT_EQ(status, "ok");
  EXPECT_EQ(column(table, "peak_bytes"), column(table, "predicted_peak_bytes"));
  const std::vector<Json> communication = column(table, "communication_ms");
  EXPECT_TRUE(communication[0].is_null()) << "one rank has none";
  for (std::size_t i = 1; i < communication.size(); ++i) EXPECT_GT(communication[i].as_double(), 0);

  const Table& sums = sections[0].tables.at(1);
  EXPECT_EQ(sums.name, "collectives");
  ASSERT_EQ(sums.rows.size(), 4u);
  for (const Json& ms : column(sums, "median_ms")) EXPECT_GT(ms.as_double(), 0);
  // Half of a tensor is received while parts are summed, half while sums are handed on.
  EXPECT_EQ(column(sums, "received_bytes"), column(sums, "bytes"));
}

TEST_F(StudyOfRanksTest, WhatIsInPartsTakesLessAndTheBatchIsDivided) {
  machine_.runs_ranks = false;
  const Table table = run("dp=3").at(0).tables.at(0);
  EXPECT_EQ(table.name, "planned_ranks");
  for (const Json& batch : column(table, "batch")) EXPECT_EQ(batch.as_int(), 6);
  const std::vector<Json> peaks = column(table, "predicted_peak_bytes");
  ASSERT_EQ(peaks.size(), 10u);
  for (std::size_t shard = 1; shard <= 3; ++shard) {
    EXPECT_LT(peaks[6 + shard].as_int(), peaks[6].as_int()) << shard;
  }
  EXPECT_LT(peaks[9].as_int(), peaks[8].as_int());
  EXPECT_DOUBLE_EQ(column(table, "of_one")[9].as_double(),
                   peaks[9].as_double() / peaks[0].as_double());
}

TEST_F(StudyOfRanksTest, AFormOfOnesOwnIsTheLastRow) {
  const Table table = run("dp=2,shard=3,prefetch=2").at(0).tables.at(0);
  EXPECT_EQ(texts(table, "parallel").back(), "dp=2,shard=3,prefetch=2");
  EXPECT_EQ(table.rows.size(), 11u);
  machine_.runs_ranks = false;
  EXPECT_EQ(texts(run("dp=2,tp=2").at(0).tables.at(0), "parallel").at(6), "dp=2,tp=2");
}

TEST_F(StudyOfRanksTest, WhereRanksDoNotRunTheirBytesArePredictedAlone) {
  machine_.runs_ranks = false;
  const std::vector<StudySection> sections = run("dp=2");
  ASSERT_EQ(sections.at(0).tables.size(), 1u);
  EXPECT_EQ(sections[0].tables[0].name, "planned_ranks");
  EXPECT_THAT(sections[0].reading, ::testing::HasSubstr("Here are their bytes"));
}

TEST_F(StudyOfRanksTest, WithoutTimeBytesArePredictedAllTheSame) {
  const std::vector<StudySection> sections = run("dp=2", 0);
  ASSERT_EQ(sections.at(0).tables.size(), 1u);
  EXPECT_EQ(sections[0].tables[0].name, "planned_ranks");
  EXPECT_EQ(sections[0].tables[0].rows.size(), 10u);
}

}  // namespace
}  // namespace tracestep
