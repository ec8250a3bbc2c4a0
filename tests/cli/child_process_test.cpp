#include "cli/child_process.h"

#include <gtest/gtest.h>

#include "base/cores.h"

namespace tracestep::cli {
namespace {

// A process that measures steps would have one core where its parent has computed before.
TEST(ChildProcessTest, AProcessHasAllCoresWhereItsParentIsBoundToOne) {
  const auto cores = [] { return run_command("grep Cpus_allowed_list /proc/self/status", {}).out; };
  const std::string all = cores();
  ASSERT_NE(all.find("Cpus_allowed_list:"), std::string::npos) << all;
  bind_to_core(cores_at_start().front());
  const std::string from_bound = cores();
  leave_core();
  EXPECT_EQ(from_bound, all);
}

}  // namespace
}  // namespace tracestep::cli
