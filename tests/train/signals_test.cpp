#include "train/signals.h"

#include <sys/wait.h>
#include <unistd.h>

#include <gtest/gtest.h>

namespace tracestep {
namespace {

TEST(SignalsTest, TheFirstSignalIsNotedAndHandlersAreRestored) {
  for (int number : {SIGINT, SIGTERM}) {
    const StopSignal stop;
    EXPECT_FALSE(stop.requested());
    EXPECT_EQ(stop.exit_status(), 0);
    raise(number);
    EXPECT_TRUE(stop.requested());
    EXPECT_EQ(stop.signal_number(), number);
    EXPECT_EQ(stop.exit_status(), 128 + number);
  }
  struct sigaction now {};
  sigaction(SIGINT, nullptr, &now);
  EXPECT_EQ(now.sa_handler, SIG_DFL);
}

TEST(SignalsTest, TheSecondSignalExitsAtOnce) {
  for (int number : {SIGINT, SIGTERM}) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      const StopSignal stop;
      raise(SIGINT);
      raise(number);
      _exit(0);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 128 + number);
  }
}

}  // namespace
}  // namespace tracestep
