#include "lab/memory/tables.h"

#include <gtest/gtest.h>

#include "support/backends.h"

namespace tracestep {
namespace {

TEST(MemoryStackTest, TheCategoriesAddUpToThePredictedTotalAtEveryNode) {
  const ModelConfig model{.vocab = 32, .d_model = 16, .d_ff = 32, .layers = 2, .heads = 2};
  for (Granularity ops : {Granularity::kPrimitive, Granularity::kFused}) {
    const MemoryRunSpec spec{
        .step = {.model = model, .shape = {.batch = 2, .context = 8}, .ops = ops}};
    const MemoryCell cell{
        .run = run_memory([](const RunSpec&) { return testing::backend_named("cpu").make({}); },
                          spec)};
    const Table table = stack_table(cell);
    ASSERT_EQ(table.rows.size(), cell.run.moments.size());
    std::size_t first = 0, total = 0;
    for (std::size_t c = 0; c < table.columns.size(); ++c) {
      if (table.columns[c].name == "parameter") first = c;
      if (table.columns[c].name == "total_bytes") total = c;
    }
    ASSERT_GT(total, first);
    std::int64_t highest = 0;
    for (const auto& row : table.rows) {
      std::int64_t sum = 0;
      for (std::size_t c = first; c < total; ++c) sum += row[c].as_int();
      EXPECT_EQ(sum, row[total].as_int()) << "node " << row[0].dump();
      EXPECT_EQ(row[total + 1].as_int(), row[total].as_int()) << "node " << row[0].dump();
      highest = std::max(highest, sum);
    }
    EXPECT_EQ(highest, cell.run.map.peak_bytes);
  }
}

}  // namespace
}  // namespace tracestep
