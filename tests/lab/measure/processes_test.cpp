#include "lab/measure/processes.h"

#include <gtest/gtest.h>

namespace tracestep {
namespace {

TEST(ProcessesTest, SamplesAreCutByTheirCounts) {
  const std::vector<double> samples = {1, 2, 3, 4, 5};
  EXPECT_EQ(by_process(samples, std::vector<double>{2, 3}), (ProcessSamples{{1, 2}, {3, 4, 5}}));
  EXPECT_EQ(by_process(samples, {}), (ProcessSamples{{1, 2, 3, 4, 5}}));
  EXPECT_TRUE(by_process({}, {}).empty());
  // Counts of other samples.
  for (const std::vector<double>& counts :
       {std::vector<double>{2, 2}, {2, 4}, {5, 0}, {-1, 6}, {6}, {1e300}}) {
    EXPECT_TRUE(by_process(samples, counts).empty());
  }
  EXPECT_EQ(process_medians({{3, 1, 2}, {4, 8}}), (std::vector<double>{2, 6}));
  EXPECT_EQ(counts_column("samples_ms"), "process_samples");
  EXPECT_EQ(counts_column("forward_samples_ms"), "forward_process_samples");
}

TEST(ProcessesTest, TheIntervalOfSeveralProcessesIsOfTheirMedians) {
  // Steady within each process, and the processes apart: forty samples know no more than four.
  std::vector<double> ms;
  for (double process : {10.0, 11.0, 12.0, 13.0, 14.0, 15.0}) ms.insert(ms.end(), 10, process);
  const TimedSamples one(ms), six(ms, std::vector<double>(6, 10.0));
  EXPECT_EQ(six.interval.low, 10);
  EXPECT_EQ(six.interval.high, 15);
  EXPECT_TRUE(six.has_interval());
  EXPECT_EQ(one.interval.low, 12);
  EXPECT_EQ(one.interval.high, 13);
  EXPECT_EQ(one.summary.median, six.summary.median);
  ms.resize(50);
  EXPECT_FALSE(TimedSamples(ms, std::vector<double>(5, 10.0)).has_interval());
}

Json row_of(std::vector<double> samples, double wall_ms, int faults) {
  Json row = Json::object();
  row["batch"] = 2;
  row["context"] = 8;
  row["status"] = "ok";
  row["samples_ms"] = list_of(samples);
  row["median_ms"] = -1.0;
  row["wall_ms"] = wall_ms;
  row["untracked_bytes"] = 100 + faults;
  row["major_faults"] = faults;
  row["flops"] = 1000;
  row["tflops"] = 1.0;
  row["tokens_per_s"] = 1.0;
  row["host_before"] = faults;
  row["host_after"] = faults;
  return row;
}

const std::vector<Column> kColumns = {real_column("wall_ms", "", "ms", 3)};

TEST(ProcessesTest, RowsOfSeveralProcessesBecomeOne) {
  const std::vector<Json> rows = {row_of({1, 2, 3}, 2, 1), row_of({4, 5}, 4.5, 2),
                                  row_of({6}, 6, 4)};
  const Json all = merged_row(rows, kColumns);
  EXPECT_EQ(all.at("samples_ms"), list_of(std::vector<double>{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(all.at("process_samples"), Json(Json::Array{3, 2, 1}));
  EXPECT_EQ(all.at("median_ms").as_double(), 3.5);
  EXPECT_EQ(all.at("wall_ms").as_double(), 4.5);
  EXPECT_EQ(all.at("untracked_bytes"), Json(102));
  EXPECT_EQ(all.at("major_faults"), Json(7));
  EXPECT_DOUBLE_EQ(all.at("tflops").as_double(), 1000 / 3.5 * 1e-9);
  EXPECT_DOUBLE_EQ(all.at("tokens_per_s").as_double(), 16 / 3.5 * 1e3);
  std::vector<Json> micro_batches = rows;
  for (Json& row : micro_batches) row["accumulate"] = 4;
  EXPECT_DOUBLE_EQ(merged_row(micro_batches, kColumns).at("tokens_per_s").as_double(),
                   4 * 16 / 3.5 * 1e3);
  EXPECT_EQ(all.at("host_before"), Json(1));
  EXPECT_EQ(all.at("host_after"), Json(4));
  // Rows that were merged before keep their processes.
  const Json again = merged_row(std::vector<Json>{all, rows[0]}, kColumns);
  EXPECT_EQ(again.at("process_samples"), Json(Json::Array{3, 2, 1, 3}));
  Json failed = rows[1];
  failed["status"] = "oom";
  Json of_two = merged_row(std::vector<Json>{rows[0], failed}, kColumns);
  failed["process_samples"] = Json();
  EXPECT_EQ(of_two, failed);
}

}  // namespace
}  // namespace tracestep
