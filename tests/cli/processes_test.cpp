// Ranks as processes, by MPI: they compute the bits that threads compute, one of them writes, and
// one that fails ends all.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <chrono>
#include <csignal>
#include <fstream>
#include <set>
#include <thread>

#include "base/json.h"
#include "cli/child_processes.h"
#include "cli/run_binary.h"
#include "run/parallel.h"
#include "spec/parse_words.h"
#include "support/paths.h"
#include "support/temp_folder.h"

namespace tracestep {
namespace {

using ::testing::HasSubstr;

constexpr const char* kModel =
    " --d-model 32 --d-ff 48 --layers 2 --heads 2 --context 16 --batch 6 --threads 1";

ProgramRun launch(int processes, const std::string& command, const RunHow& how = {},
                  const std::string& options = "") {
  return run_tracestep(words_of(fmt::format("launch -n {} {} -- {}", processes, options, command)),
                       how);
}

class ProcessesTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    has_mpi_ = run_tracestep({"doctor"}).out.find("install libopenmpi-dev") == std::string::npos;
  }
  void SetUp() override {
    if (!has_mpi_) GTEST_SKIP() << "this build has no MPI";
  }

  std::string train(const std::string& name, const std::string& parallel, int steps = 3) const {
    std::ofstream(folder_ / "text") << std::string(4000, 'a') + "The step of many ranks. ";
    return fmt::format("train --text {} --parallel {} --steps {} --save {} --log {}{}",
                       (folder_ / "text").string(), parallel, steps,
                       (folder_ / (name + ".safetensors")).string(),
                       (folder_ / (name + ".log")).string(), kModel);
  }
  std::string weights(const std::string& name) const {
    return content_of(folder_ / (name + ".safetensors"));
  }

  TempFolder folder_;

 private:
  static inline bool has_mpi_ = false;
};

TEST_F(ProcessesTest, TrainingHasTheBitsOfThreads) {
  for (const std::string parallel : {"dp=2", "dp=3,shard=3", "dp=2,shard=3,tp=2"}) {
    const int ranks = parse_parallel("", parallel).ranks;
    const ProgramRun threads = run_tracestep(words_of(train("threads", parallel)));
    EXPECT_EQ(threads.status, 0) << threads.err;
    const ProgramRun processes = launch(ranks, train("processes", parallel));
    EXPECT_EQ(processes.status, 0) << processes.err;
    EXPECT_EQ(weights("processes"), weights("threads")) << parallel;
    EXPECT_FALSE(weights("processes").empty());
    EXPECT_EQ(processes.out.find("Training"), processes.out.rfind("Training")) << "written once";
  }
}

TEST_F(ProcessesTest, ARowOfAStepIsThatOfThreads) {
  for (const char* parallel : {"dp=2,shard=3", "dp=3,shard=1", "tp=2,sp"}) {
    const std::string bench = fmt::format(
        "bench --mode step --vocab 64 --warmup 1 --steps 2 --format json --parallel {}{}", parallel,
        kModel);
    const ProgramRun threads = run_tracestep(words_of(bench));
    const ProgramRun processes = launch(parse_parallel("", parallel).ranks, bench);
    ASSERT_EQ(processes.status, 0) << processes.err;
    const Json a = Json::parse(threads.out, "threads").at("rows").items()[0],
               b = Json::parse(processes.out, "processes").at("rows").items()[0];
    for (const char* column : {"peak_bytes", "predicted_peak_bytes", "launches", "flops"}) {
      EXPECT_EQ(a.at(column).dump(), b.at(column).dump()) << parallel << " " << column;
    }
  }
}

TEST_F(ProcessesTest, CollectivesAreTimedAndMemoryIsMeasured) {
  const ProgramRun comm = launch(2, "comm --bytes 4KiB,4MiB --calls 3 --warmup 1 --format json");
  ASSERT_EQ(comm.status, 0) << comm.err;
  const Json rows = Json::parse(comm.out, "comm").at("rows");
  EXPECT_EQ(rows.items().size(), 6u);
  for (const Json& row : rows.items()) {
    EXPECT_EQ(row.at("ranks").as_int(), 2);
    EXPECT_GT(row.at("bus_gb_s").as_double(), 0.0);
  }
  const ProgramRun memory =
      launch(2, std::string("memory --mode step --vocab 64 --parallel dp=2,shard=2 --format json") +
                    kModel);
  EXPECT_EQ(memory.status, 0) << memory.err;
}

TEST_F(ProcessesTest, TheNameOfTheProgramIsNoPartOfTheCommand) {
  for (const std::string& name : {std::string("tracestep"), testing::program_path().string()}) {
    const ProgramRun run =
        launch(2, name + " comm --collective all_reduce --bytes 4KiB --calls 1 --format csv");
    EXPECT_EQ(run.status, 0) << run.err;
    EXPECT_THAT(run.out, HasSubstr("all_reduce"));
  }
}

TEST_F(ProcessesTest, ProcessesThatDoNotFitTheRunAreRefusedOnce) {
  const ProgramRun run = launch(2, train("w", "dp=3"));
  EXPECT_EQ(run.status, 2);
  EXPECT_EQ(
      run.err,
      "tracestep: [--parallel] 2 processes are asked for, and the step is that of 3 ranks; use "
      "--parallel dp=2, or as many processes as it has ranks\n");
}

// The ranks below mpirun, in their order.
std::vector<pid_t> ranks_after_a_checkpoint(pid_t mpirun, const std::filesystem::path& folder) {
  EXPECT_TRUE(comes_true([&] { return std::filesystem::exists(folder / "latest"); }));
  return children_of(mpirun);
}

// True if a process listens on a port.
bool listens(pid_t process) {
  std::set<std::string> listening;  // as /proc names sockets
  for (const char* table : {"tcp", "tcp6"}) {
    std::ifstream sockets(fmt::format("/proc/{}/net/{}", process, table));
    for (std::string line; std::getline(sockets, line);) {
      const std::vector<std::string> words = words_of(line);
      if (words.size() > 9 && words[3] == "0A") listening.insert("socket:[" + words[9] + "]");
    }
  }
  const auto files = std::filesystem::directory_iterator(fmt::format("/proc/{}/fd", process));
  return std::ranges::any_of(files, [&](const auto& file) {
    std::error_code gone;
    return listening.contains(std::filesystem::read_symlink(file, gone).string());
  });
}

TEST_F(ProcessesTest, RanksOfThisMachineOpenNoPorts) {
  const auto checkpoints = folder_ / "run";
  RunHow how;
  how.while_running = [&](pid_t mpirun) {
    const std::vector<pid_t> ranks = ranks_after_a_checkpoint(mpirun, checkpoints);
    EXPECT_EQ(ranks.size(), 2u);
    EXPECT_TRUE(listens(mpirun)) << "what this test would see";
    for (const pid_t rank : ranks) EXPECT_FALSE(listens(rank));
    ::kill(mpirun, SIGTERM);
  };
  launch(2,
         train("w", "dp=2", 1000000) + fmt::format(" --checkpoint {}", checkpoints.string()) +
             " --checkpoint-every 5",
         how);
}

struct Ended {
  ProgramRun run;
  double seconds = 0.0;  // from the signal
};

// Trains without end until checkpoints are written, and sends a signal to rank 1.
Ended train_until(const std::string& command, const std::filesystem::path& checkpoints, int number,
                  const std::string& options) {
  Ended out;
  std::chrono::steady_clock::time_point sent;
  RunHow how;
  how.while_running = [&](pid_t mpirun) {
    const std::vector<pid_t> ranks = ranks_after_a_checkpoint(mpirun, checkpoints);
    ASSERT_EQ(ranks.size(), 2u);
    sent = std::chrono::steady_clock::now();
    ::kill(ranks[1], number);
  };
  out.run = launch(2, command, how, options);
  out.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - sent).count();
  return out;
}

// A killed rank is seen by mpirun, without a limit of time. The limit for a rank that hangs must be
// longer than rank 0 takes for a checkpoint, which on a busy disk is seconds.
TEST_F(ProcessesTest, ARankThatIsKilledOrHangsEndsAllAndTheCheckpointStays) {
  for (const int number : {SIGKILL, SIGSTOP}) {
    const double timeout_s = number == SIGKILL ? 300.0 : 10.0;
    const auto checkpoints = folder_ / fmt::format("run{}", number);
    const std::string options =
        fmt::format(" --checkpoint {} --checkpoint-every 5", checkpoints.string());
    const Ended ended = train_until(train("w", "dp=2", 1000000) + options, checkpoints, number,
                                    fmt::format("--comm-timeout {}", timeout_s));
    EXPECT_LT(ended.seconds, 60.0);
    EXPECT_EQ(ended.run.status, number == SIGKILL ? 128 + SIGKILL : 1) << ended.run.err;
    EXPECT_THAT(ended.run.err,
                HasSubstr(number == SIGKILL ? "rank 1 " : "[rank 1] it did not come to"));
    const ProgramRun resumed =
        run_tracestep(words_of(train("w", "none", 1) + options + " --resume"));
    EXPECT_EQ(resumed.status, 0) << resumed.err;
  }
}

// To one rank or to all: they save together, and stop together.
TEST_F(ProcessesTest, ASignalToARankIsHeardByAll) {
  const auto checkpoints = folder_ / "run";
  const auto latest = [&] { return content_of(checkpoints / "latest"); };
  const auto log = [&] { return content_of(folder_ / "w.log"); };
  RunHow how;
  how.while_running = [&](pid_t mpirun) {
    std::vector<pid_t> ranks;
    EXPECT_TRUE(comes_true([&] {
      ranks = children_of(mpirun);
      return ranks.size() == 2 && !log().empty();
    }));
    for (const pid_t receiver : {ranks.at(1), mpirun}) {
      const std::string before = latest();
      // Until the next step, what the first signal has saved is what the second one asks for.
      const std::size_t logged = log().size();
      EXPECT_TRUE(comes_true([&] { return log().size() > logged; }));
      ::kill(receiver, SIGUSR1);
      EXPECT_TRUE(comes_true([&] { return latest() != before; }));
    }
    ::kill(ranks.at(1), SIGTERM);
    const bool all_end = are_gone(ranks);
    EXPECT_TRUE(all_end);
    if (!all_end) ::kill(mpirun, SIGTERM);
  };
  const std::string options = fmt::format(" --checkpoint {}", checkpoints.string());
  const ProgramRun run = launch(2, train("w", "dp=2,shard=2", 1000000) + options, how);
  EXPECT_EQ(run.status, 128 + SIGTERM) << run.err;
  const ProgramRun resumed = run_tracestep(words_of(train("w", "none", 1) + options + " --resume"));
  EXPECT_EQ(resumed.status, 0) << resumed.err;
}

// Rank 1 may write files of a page at most from its first checkpoint on.
TEST_F(ProcessesTest, ARankThatCannotWriteItsShardEndsAllAndTheCheckpointStays) {
  const auto checkpoints = folder_ / "run";
  const std::string options =
      fmt::format(" --checkpoint {} --checkpoint-every 5", checkpoints.string());
  RunHow how;
  how.before_start = [] { std::signal(SIGXFSZ, SIG_IGN); };
  how.while_running = [&](pid_t mpirun) {
    const std::vector<pid_t> ranks = ranks_after_a_checkpoint(mpirun, checkpoints);
    ASSERT_EQ(ranks.size(), 2u);
    const rlimit limit{4096, 4096};
    ASSERT_EQ(::prlimit(ranks[1], RLIMIT_FSIZE, &limit, nullptr), 0);
  };
  const ProgramRun run = launch(2, train("w", "dp=2,shard=2", 1000000) + options, how);
  EXPECT_EQ(run.status, 5) << run.err;
  EXPECT_THAT(run.err, HasSubstr("[rank 1] "));
  EXPECT_THAT(run.err, HasSubstr("shard-00001-of-00002.safetensors cannot be written"));
  for (const auto& entry : std::filesystem::directory_iterator(checkpoints)) {
    EXPECT_FALSE(entry.path().filename().string().starts_with(".tmp")) << entry.path();
  }
  const ProgramRun resumed = launch(3, train("w", "dp=3,shard=3", 1) + options + " --resume");
  EXPECT_EQ(resumed.status, 0) << resumed.err;
}

TEST_F(ProcessesTest, ACheckpointOfTheirShardsIsContinuedAndMadeOneFile) {
  const std::string options = fmt::format(" --checkpoint {}", (folder_ / "run").string());
  const ProgramRun first = launch(2, train("first", "dp=2,shard=3") + options);
  EXPECT_EQ(first.status, 0) << first.err;
  EXPECT_TRUE(
      std::filesystem::exists(folder_ / "run/step-00000003/shard-00001-of-00002.safetensors"));
  EXPECT_EQ(content_of(folder_ / "run/step-00000003/tokenizer"),
            content_of(folder_ / "first.safetensors.tokenizer"));
  const ProgramRun one = run_tracestep(words_of(train("one", "none") + options + " --resume"));
  EXPECT_EQ(one.status, 0) << one.err;
  EXPECT_EQ(weights("one"), weights("first"));
  const ProgramRun eval = run_tracestep(words_of(
      fmt::format("eval --text {0} --context 16 --batch 2 --batches 1 --heads 2 --init {1}",
                  (folder_ / "text").string(), (folder_ / "run").string())));
  EXPECT_EQ(eval.status, 0) << eval.err;
  // Both processes take the options of the checkpoint, and the first one says which.
  const ProgramRun rest = launch(2, "train --steps 4 --resume" + options);
  EXPECT_EQ(rest.status, 0) << rest.err;
  EXPECT_THAT(rest.err, HasSubstr("[resume] from "));
  EXPECT_TRUE(
      std::filesystem::exists(folder_ / "run/step-00000004/shard-00001-of-00002.safetensors"));
}

}  // namespace
}  // namespace tracestep
