#include "base/signals.h"

#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <thread>

#include <gtest/gtest.h>

namespace tracestep {
namespace {

// Status of a process that takes signals and runs `body`: as a shell reports it.
int status_of(const std::function<void()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    take_signals();
    body();
    _exit(0);
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

void wait_until(const std::function<bool()>& done) {
  while (!done()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

[[noreturn]] void sleep_for_ever() {
  for (;;) pause();
}

TEST(SignalsTest, TheFirstSignalIsOnlyNotedWhileSomebodyListens) {
  for (int number : {SIGINT, SIGTERM, SIGHUP}) {
    const int status = status_of([number] {
      const StopSignal stop("this test goes on");
      if (stop.requested() || stop.exit_status() != 0) _exit(1);
      kill(getpid(), number);
      wait_until([&] { return stop.requested(); });
      _exit(stop.signal_number() == number ? stop.exit_status() : 2);
    });
    EXPECT_EQ(status, 128 + number);
  }
}

TEST(SignalsTest, TheSecondSignalEndsTheProcess) {
  for (int number : {SIGINT, SIGTERM, SIGHUP}) {
    const int status = status_of([number] {
      const StopSignal stop("this test goes on");
      kill(getpid(), SIGINT);
      wait_until([&] { return stop.requested(); });
      std::this_thread::sleep_for(std::chrono::milliseconds(150));
      kill(getpid(), number);
      sleep_for_ever();
    });
    EXPECT_EQ(status, 128 + number);
  }
}

// timeout(1) sends it to the program and to its group.
TEST(SignalsTest, TheSameSignalTwiceAtOnceIsOneWish) {
  const int status = status_of([] {
    const StopSignal stop("this test goes on");
    kill(getpid(), SIGTERM);
    wait_until([&] { return stop.requested(); });
    kill(getpid(), SIGTERM);
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    _exit(7);
  });
  EXPECT_EQ(status, 7);
}

TEST(SignalsTest, ASignalEndsTheProcessWhenNobodyListens) {
  const int before = status_of([] {
    kill(getpid(), SIGTERM);
    sleep_for_ever();
  });
  EXPECT_EQ(before, 128 + SIGTERM);
  const int after = status_of([] {
    { const StopSignal stop("this test goes on"); }
    kill(getpid(), SIGINT);
    sleep_for_ever();
  });
  EXPECT_EQ(after, 128 + SIGINT);
}

TEST(SignalsTest, WhatTheProcessWasToldToIgnoreStaysIgnored) {
  std::signal(SIGHUP, SIG_IGN);  // as nohup does
  const int status = status_of([] {
    kill(getpid(), SIGHUP);
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    _exit(7);
  });
  std::signal(SIGHUP, SIG_DFL);
  EXPECT_EQ(status, 7);
}

TEST(SignalsTest, NoThreadThatComputesIsInterrupted) {
  const int status = status_of([] {
    sigset_t blocked;
    std::thread([&] { pthread_sigmask(SIG_SETMASK, nullptr, &blocked); }).join();
    const bool all = sigismember(&blocked, SIGINT) == 1 && sigismember(&blocked, SIGTERM) == 1 &&
                     sigismember(&blocked, SIGHUP) == 1;
    const bool none_before = sigismember(&mask_before_signals(), SIGINT) == 0;
    _exit(all && none_before ? 7 : 1);
  });
  EXPECT_EQ(status, 7);
}

}  // namespace
}  // namespace tracestep
