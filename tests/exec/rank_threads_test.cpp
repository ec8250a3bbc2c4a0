#include "exec/rank_threads.h"

#include <sched.h>

#include <array>

#include <gtest/gtest.h>

#include "base/cores.h"

namespace tracestep {
namespace {

// Once the CPU back end has bound the first rank's thread to a core, the others would share it with
// that one: two ranks would take twice as long on two cores.
TEST(RankThreadsTest, RanksHaveAllCoresWhereTheFirstOneIsBoundToOne) {
  bind_to_core(cores_at_start().front());
  std::array<int, 3> cores{};
  {
    RankThreads ranks(3);
    ranks.run(
        [&](int rank) {
          cpu_set_t set;
          CPU_ZERO(&set);
          sched_getaffinity(0, sizeof set, &set);
          cores.at(static_cast<std::size_t>(rank)) = CPU_COUNT(&set);
        },
        [] {});
  }
  leave_core();
  const auto all = static_cast<int>(cores_at_start().size());
  EXPECT_EQ(cores, (std::array{1, all, all}));
}

}  // namespace
}  // namespace tracestep
