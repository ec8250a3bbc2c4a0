// Stops running commands as a person, a job system or a limit of time does: by signals. No child
// stays behind.
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/child_processes.h"
#include "cli/run_binary.h"
#include "support/paths.h"
#include "support/temp_folder.h"

namespace tracestep {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

const std::string kModel = " --d-model 8 --d-ff 8 --layers 1 --heads 2 --batch 2 --threads 1";

class SignalledTraining : public ::testing::Test {
 protected:
  SignalledTraining() { folder_.write("text", std::string(4000, 'a') + "A step of many."); }

  // Trains without end, with the log `log`, and calls `then` behind the first step.
  ProgramRun train(const std::string& more, const std::function<void(pid_t)>& then,
                   const std::function<void()>& before_start = {}) const {
    return run_tracestep(
        words_of("train --text text --context 8 --steps 100000000 --log log" + kModel + more),
        {.folder = folder_.path(),
         .while_running =
             [&](pid_t child) {
               EXPECT_TRUE(comes_true([&] { return !content_of(folder_ / "log").empty(); }));
               then(child);
             },
         .before_start = before_start});
  }
  std::string latest() const { return content_of(folder_ / "c/latest"); }
  bool has_another_than(const std::string& checkpoint) const {
    return comes_true([&] { return !latest().empty() && latest() != checkpoint; });
  }

  TempFolder folder_;
};

TEST_F(SignalledTraining, Sigusr1AndSigusr2SaveACheckpointAndTrainingGoesOn) {
  const ProgramRun run = train(" --checkpoint c", [&](pid_t child) {
    for (const int number : {SIGUSR1, SIGUSR2}) {
      const std::string before = latest();
      // Until the next step, what the first signal has saved is what the second one asks for.
      const std::size_t logged = content_of(folder_ / "log").size();
      EXPECT_TRUE(comes_true([&] { return content_of(folder_ / "log").size() > logged; }));
      ::kill(child, number);
      EXPECT_TRUE(has_another_than(before)) << number;
    }
    ::kill(child, SIGTERM);
  });
  EXPECT_EQ(run.status, 128 + SIGTERM) << run.err;
  EXPECT_THAT(run.err,
              HasSubstr("SIGUSR1 received: a checkpoint is saved after the step under way\n"));
  EXPECT_THAT(run.err, ::testing::ContainsRegex("\\[checkpoint\\] step [0-9]+ is in c\n"));
  const ProgramRun resumed = run_tracestep(
      words_of("train --text text --context 8 --steps 1 --checkpoint c --resume" + kModel),
      {.folder = folder_.path()});
  EXPECT_EQ(resumed.status, 0) << resumed.err;
}

TEST_F(SignalledTraining, WithoutCheckpointsItIsSaidThatNothingIsSaved) {
  const ProgramRun run = train("", [](pid_t child) {
    ::kill(child, SIGUSR1);
    ::usleep(100000);
    ::kill(child, SIGTERM);
  });
  EXPECT_EQ(run.status, 128 + SIGTERM) << run.err;
  EXPECT_THAT(run.err, HasSubstr("SIGUSR1 received: nothing is saved, as there is no --check"));
}

TEST_F(SignalledTraining, ALimitOfProcessorTimeEndsItWithACheckpoint) {
  const ProgramRun run = train(
      " --checkpoint c", [](pid_t) {},
      [] {
        const rlimit second{1, RLIM_INFINITY};
        ::setrlimit(RLIMIT_CPU, &second);
      });
  EXPECT_EQ(run.status, 128 + SIGXCPU) << run.err;
  EXPECT_THAT(run.err, HasSubstr("SIGXCPU received: training ends after the step under way"));
  EXPECT_FALSE(latest().empty());
}

// As `alarm` before exec: a limit of time that needs no other program.
TEST_F(SignalledTraining, AnAlarmEndsItWithACheckpoint) {
  const ProgramRun run = train(
      " --checkpoint c", [](pid_t) {}, [] { ::alarm(1); });
  EXPECT_EQ(run.status, 128 + SIGALRM) << run.err;
  EXPECT_FALSE(latest().empty());
}

TEST_F(SignalledTraining, AStderrThatNobodyReadsHoldsNothingUp) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const ProgramRun run = train(
      " --checkpoint c",
      [&](pid_t child) {
        ::fcntl(ends[1], F_SETFL, O_NONBLOCK);
        const std::string page(4096, 'x');
        while (::write(ends[1], page.data(), page.size()) > 0) {
        }
        ::fcntl(ends[1], F_SETFL, 0);
        ::kill(child, SIGUSR1);
        EXPECT_TRUE(comes_true([&] { return !latest().empty(); }));
        ::kill(child, SIGTERM);
        EXPECT_TRUE(are_gone({child}));
        ::kill(child, SIGKILL);
      },
      [&] { ::dup2(ends[1], STDERR_FILENO); });
  EXPECT_EQ(run.status, 128 + SIGTERM);
  EXPECT_FALSE(latest().empty());
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST(SignalsOfCommandsTest, ASignalToSaveEndsNoCommandThatHasNothingToSave) {
  const ProgramRun run = run_tracestep(
      words_of("bench --context 8 --vocab 20 --mode step --warmup 0 --roof 0 --steps 3000" +
               kModel),
      {.while_running = [](pid_t child) {
        EXPECT_TRUE(comes_true([&] { return takes_signals(child); }));
        ::kill(child, SIGUSR1);
        ::kill(child, SIGUSR2);
      }});
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_THAT(run.err,
              HasSubstr("SIGUSR1 received: there is nothing to save, and the program goe"));
  EXPECT_THAT(run.err, HasSubstr("SIGUSR2 received: "));
}

// Commands whose children would go on for minutes.
class ChildrenTest : public ::testing::Test {
 protected:
  static std::string bench() {
    return "bench --context 64 --mode step --steps 100000 --roof 0 --size tiny --threads 1";
  }

  // Sends the signal when so many descendants are there, and returns how it ended; none is left.
  static ProgramRun run(const std::vector<std::string>& words, std::size_t descendants,
                        int number) {
    std::vector<pid_t> all;
    const ProgramRun out = run_tracestep(words, {.while_running = [&](pid_t parent) {
                                           EXPECT_TRUE(comes_true([&] {
                                             all = descendants_of(parent);
                                             return all.size() >= descendants &&
                                                    takes_signals(all.back()) &&
                                                    all == descendants_of(parent);
                                           }));
                                           ::usleep(50000);
                                           ::kill(parent, number);
                                           EXPECT_TRUE(are_gone({parent}));
                                           ::kill(parent, SIGKILL);
                                         }});
    EXPECT_TRUE(are_gone(all));
    for (const pid_t process : all) ::kill(process, SIGKILL);
    return out;
  }
};

TEST_F(ChildrenTest, ProcessesOfBenchEndWithIt) {
  for (const int number : {SIGTERM, SIGKILL}) {
    const ProgramRun ended = run(words_of(bench() + " --processes 2"), 1, number);
    EXPECT_EQ(ended.status, 128 + number) << ended.err;
  }
}

// The shell has one process more where it does not become the last command.
TEST_F(ChildrenTest, CommandsOfCompareEndWithIt) {
  const std::string program = testing::program_path().string();
  for (const int number : {SIGTERM, SIGKILL}) {
    const std::string command = fmt::format("true; {} {}; true", program, bench());
    const ProgramRun ended = run({"compare", "--run", command, "--run", command}, 3, number);
    EXPECT_EQ(ended.status, 128 + number) << ended.err;
    if (number == SIGTERM) {
      EXPECT_THAT(ended.err, HasSubstr("nothing is compared"));
    }
  }
}

TEST_F(ChildrenTest, ProcessesOfTheCommandsOfCompareEndWithIt) {
  const std::string command =
      fmt::format("{} {} --processes 2 && true", testing::program_path().string(), bench());
  run({"compare", "--run", command, "--run", command}, 4, SIGKILL);
}

TEST_F(ChildrenTest, AShellThatIsKilledIsAFailedCommandAsBefore) {
  const ProgramRun run = run_tracestep({"compare", "--run", "kill -9 $$", "--run", "kill -9 $$"});
  EXPECT_EQ(run.status, 1);
  EXPECT_THAT(run.err, HasSubstr("ended with status 137"));
}

}  // namespace
}  // namespace tracestep
