#include "backends/comm/launch/launched.h"

#include <gtest/gtest.h>

#include "support/scoped_variable.h"
#include "support/temp_folder.h"

namespace tracestep {
namespace {

// Task 3 of 4 in a step of srun on two hosts.
class LaunchedTest : public ::testing::Test {
 protected:
  const ScopedVariable mpi_{"OMPI_COMM_WORLD_SIZE", ""}, pmi_{"PMI_SIZE", ""},
      pmix_{"PMIX_RANK", ""}, world_{"WORLD_SIZE", ""}, host_{"MASTER_ADDR", ""},
      port_{"MASTER_PORT", ""};
  const ScopedVariable tasks_{"SLURM_STEP_NUM_TASKS", "4"}, rank_{"SLURM_PROCID", "3"},
      local_{"SLURM_LOCALID", "1"}, hosts_{"SLURM_STEP_NODELIST", "gpu[07-08]"},
      job_{"SLURM_JOB_ID", "123456"}, step_{"SLURM_STEP_ID", "2"};
};

TEST_F(LaunchedTest, AStepOfSrunIsReadAsTorchrunsVariablesAre) {
  const Launched self = launched().value();
  EXPECT_EQ(self.rank, 3);
  EXPECT_EQ(self.count, 4);
  EXPECT_EQ(self.local_rank, 1);
  EXPECT_FALSE(self.has_mpi);
  EXPECT_EQ(self.host, "gpu07");
  EXPECT_EQ(self.port, 20000 + (123456 * 101 + 2) % 10000);
}

TEST_F(LaunchedTest, StepsAndJobsHavePortsOfTheirOwn) {
  const int port = launched().value().port;
  const ScopedVariable step("SLURM_STEP_ID", "3");
  EXPECT_NE(launched().value().port, port);
  const ScopedVariable same("SLURM_STEP_ID", "2"), job("SLURM_JOB_ID", "123457");
  EXPECT_NE(launched().value().port, port);
}

TEST_F(LaunchedTest, WhoeverGivesAnAddressIsBelieved) {
  const ScopedVariable host("MASTER_ADDR", "head"), port("MASTER_PORT", "1234");
  EXPECT_EQ(launched().value().host, "head");
  EXPECT_EQ(launched().value().port, 1234);
}

TEST_F(LaunchedTest, PmixMeansMpi) {
  const ScopedVariable pmix("PMIX_RANK", "3");
  EXPECT_TRUE(launched().value().has_mpi);
  EXPECT_EQ(launched().value().rank, 3);
}

TEST_F(LaunchedTest, TheInnerLauncherCounts) {
  const ScopedVariable world("WORLD_SIZE", "2"), rank("RANK", "1"), local("LOCAL_RANK", "0"),
      port("MASTER_PORT", "29500");
  EXPECT_EQ(launched().value().count, 2);
  EXPECT_EQ(launched().value().rank, 1);
  const ScopedVariable one("WORLD_SIZE", "1");
  EXPECT_FALSE(launched());
  const ScopedVariable mpi("OMPI_COMM_WORLD_SIZE", "3"), mpi_rank("OMPI_COMM_WORLD_RANK", "2");
  EXPECT_EQ(launched().value().count, 3);
  EXPECT_TRUE(launched().value().has_mpi);
}

TEST_F(LaunchedTest, AScriptThatIsNoStepAndAStepOfOneTaskAreAlone) {
  {
    const ScopedVariable one("SLURM_STEP_NUM_TASKS", "1");
    EXPECT_FALSE(launched());
  }
  // sbatch sets these for the script itself, whatever the job's number of tasks is.
  const ScopedVariable no_step("SLURM_STEP_NUM_TASKS", ""), tasks("SLURM_NTASKS", "4");
  EXPECT_FALSE(launched());
}

TEST_F(LaunchedTest, WhatIsMissingIsNamed) {
  const ScopedVariable rank("SLURM_PROCID", "");
  EXPECT_TRUE(contains(message_of(ErrorCode::kUsage, [] { launched(); }),
                       "[SLURM_PROCID] it is missing beside SLURM_STEP_NUM_TASKS"));
}

TEST(FirstHostTest, IsTheFirstOfAListInBrackets) {
  EXPECT_EQ(first_host("vm"), "vm");
  EXPECT_EQ(first_host("a1,b2"), "a1");
  EXPECT_EQ(first_host("node[03-05,9]-ib,other"), "node03-ib");
  EXPECT_EQ(first_host("node[7],node[9-10]"), "node7");
  EXPECT_EQ(first_host("rack[2-3]n[08,10]"), "rack2n08");
}

}  // namespace
}  // namespace tracestep
