// Collectives alone: what a row says of them.
#include "lab/comm/collectives.h"

#include <gtest/gtest.h>

#include "backends/comm/local/local_group.h"
#include "backends/cpu/cpu_device.h"
#include "base/error.h"
#include "support/tables.h"

namespace tracestep {
namespace {

using testing::cell;

CollectiveTimes time_on_threads(const CollectiveSpec& spec) {
  const auto first = make_cpu_device({.threads = 1});
  std::vector<std::unique_ptr<Device>> others;
  for (int rank = 1; rank < spec.ranks; ++rank) others.push_back(make_cpu_device({.threads = 1}));
  return time_collective(RankDevices(*first, std::move(others), make_local_group(spec.ranks)), {},
                         spec);
}

TEST(CollectivesTest, BandwidthIsOfTheBytesThatWereReceived) {
  constexpr std::int64_t kBytes = 1 << 12;
  std::vector<CollectiveTimes> times;
  for (const std::string& op : kTimedCollectives) {
    times.push_back(
        time_on_threads({.op = op, .ranks = 4, .bytes = kBytes, .warmup = 1, .calls = 3}));
    EXPECT_EQ(times.back().samples_ms.size(), 3u);
    for (const double ms : times.back().samples_ms) EXPECT_GT(ms, 0.0);
  }
  EXPECT_EQ(times[0].received_bytes, kBytes * 2 * 3 / 4);
  EXPECT_EQ(times[1].received_bytes, kBytes * 3 / 4);
  EXPECT_EQ(times[2].received_bytes, kBytes * 3 / 4);
  const Table table = collective_table(times);
  for (std::size_t row = 0; row < times.size(); ++row) {
    const double bus = cell(table, row, "bus_gb_s").as_double(),
                 algorithm = cell(table, row, "algorithm_gb_s").as_double();
    EXPECT_NEAR(bus / algorithm, row == 0 ? 1.5 : 0.75, 1e-12);
    EXPECT_NEAR(algorithm * cell(table, row, "median_ms").as_double() * 1e6, kBytes, 1e-6);
  }
}

TEST(CollectivesTest, APartOfAnElementIsRefused) {
  EXPECT_THROW(time_on_threads({.bytes = 6}), Error);
}

}  // namespace
}  // namespace tracestep
