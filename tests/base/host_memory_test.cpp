#include "base/host_memory.h"

#include <gtest/gtest.h>

#include "support/memory_root.h"
#include "support/scoped_variable.h"

namespace tracestep {
namespace {

using testing::MemoryRoot;

TEST(HostMemoryTest, TheLeastLimitOfItsGroupsHolds) {
  const TempFolder folder;
  const auto limit = [&](const char* groups) {
    folder.write("proc/self/cgroup", groups);
    return memory_limit_of_groups(folder.path()).value_or(0);
  };
  constexpr const char* kJob = "0::/system.slice/job_7/step_0\n";
  EXPECT_EQ(limit(kJob), 0) << "no file says anything";
  folder.write("sys/fs/cgroup/system.slice/memory.max", "max\n");
  folder.write("sys/fs/cgroup/system.slice/job_7/memory.max", "2000\n");
  folder.write("sys/fs/cgroup/system.slice/job_7/step_0/memory.max", "3000\n");
  EXPECT_EQ(limit(kJob), 2000);
  EXPECT_EQ(limit("0::/system.slice\n"), 0);
  folder.write("sys/fs/cgroup/memory.max", "1000\n");  // a container's
  EXPECT_EQ(limit("0::/\n"), 1000);
  folder.write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  folder.write("sys/fs/cgroup/memory/slurm/job_7/memory.limit_in_bytes", "500\n");
  EXPECT_EQ(limit("5:cpu,memory:/slurm/job_7\n4:pids:/x\n"), 500);
}

TEST(HostMemoryTest, WhatAGroupHasLeftIsLessThanWhatTheKernelHas) {
  MemoryRoot root(1 << 20);
  EXPECT_EQ(available_memory(root.path()), 1 << 20);
  for (const int version : {2, 1}) {
    root.in_group(version, 600'000, 500'000);
    EXPECT_EQ(available_memory(root.path()), 100'000) << version;
    root.in_group(version, 5 << 20, 500'000);
    EXPECT_EQ(available_memory(root.path()), 1 << 20) << "the machine has less than the group";
    root.in_group(version, 600'000, 700'000);
    EXPECT_EQ(available_memory(root.path()), 0) << version;
  }
}

TEST(HostMemoryTest, CachedFilesCountAsFree) {
  MemoryRoot root(1 << 20);
  root.in_group(2, 600'000, 500'000);
  root.folder().write("sys/fs/cgroup/job/memory.stat",
                      "anon 100000\nfile 400000\ninactive_file 300000\nactive_file 90000\n");
  EXPECT_EQ(available_memory(root.path()), 490'000);
  root.in_group(1, 600'000, 500'000);
  root.folder().write("sys/fs/cgroup/memory/job/memory.stat",
                      "inactive_file 7\ntotal_inactive_file 300000\ntotal_active_file 0\n");
  EXPECT_EQ(available_memory(root.path()), 400'000);
}

TEST(HostMemoryTest, ASystemThatSaysNothingIsNotKnown) {
  const TempFolder empty;
  EXPECT_EQ(available_memory(empty.path()), std::nullopt);
  EXPECT_EQ(memory_limit_of_groups(empty.path()), std::nullopt);
}

TEST(HostMemoryTest, ThisMachineHasSomeAndAVariableReplacesIt) {
  EXPECT_GT(available_memory().value_or(0), 1 << 20);
  const MemoryRoot root(3 << 20);
  const ScopedVariable variable("TRACESTEP_SYSTEM_ROOT", root.path().c_str());
  EXPECT_EQ(available_memory(), 3 << 20);
}

}  // namespace
}  // namespace tracestep
