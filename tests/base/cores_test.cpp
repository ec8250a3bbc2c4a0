#include "base/cores.h"

#include <sched.h>

#include <gtest/gtest.h>

namespace tracestep {
namespace {

int cores_now() {
  cpu_set_t set;
  CPU_ZERO(&set);
  sched_getaffinity(0, sizeof set, &set);
  return CPU_COUNT(&set);
}

TEST(CoresTest, AThreadThatLeavesItsCoreMayRunOnAllAgain) {
  const int all = cores_now();
  ASSERT_EQ(static_cast<int>(cores_at_start().size()), all);
  bind_to_core(cores_at_start().back());
  EXPECT_EQ(cores_now(), 1);
  EXPECT_EQ(static_cast<int>(cores_at_start().size()), all) << "as they were at the start";
  leave_core();
  EXPECT_EQ(cores_now(), all);
}

}  // namespace
}  // namespace tracestep
