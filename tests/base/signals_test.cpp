#include "base/signals.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>

#include <gtest/gtest.h>

#include "base/log.h"

namespace tracestep {
namespace {

// Status of a process that takes signals and runs `body`: as a shell reports it. One that hangs is
// killed after ten seconds.
int status_of(const std::function<void()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    take_signals();
    body();
    _exit(0);
  }
  int status = 0;
  for (int looks = 0; waitpid(child, &status, WNOHANG) == 0; ++looks) {
    if (looks == 2000) kill(child, SIGKILL);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

void wait_until(const std::function<bool()>& done) {
  while (!done()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

[[noreturn]] void sleep_for_ever() {
  for (;;) pause();
}

TEST(SignalsTest, TheFirstSignalIsOnlyNotedWhileSomebodyListens) {
  for (int number : {SIGINT, SIGTERM, SIGHUP, SIGALRM, SIGXCPU}) {
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
  for (int number : {SIGINT, SIGTERM, SIGHUP, SIGALRM}) {
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

// The system sends it every second from the soft limit on: a checkpoint may take longer.
TEST(SignalsTest, ASecondSigxcpuIsNoWishToEndAtOnce) {
  const int status = status_of([] {
    const StopSignal stop("this test goes on");
    kill(getpid(), SIGXCPU);
    wait_until([&] { return stop.requested(); });
    std::this_thread::sleep_for(std::chrono::milliseconds(150));
    kill(getpid(), SIGXCPU);
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    _exit(7);
  });
  EXPECT_EQ(status, 7);
}

TEST(SignalsTest, ASignalToSaveIsNotedWhileThereIsSomethingToSaveAndEndsNothing) {
  for (int number : {SIGUSR1, SIGUSR2}) {
    const int status = status_of([number] {
      kill(getpid(), number);  // nobody listens
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      {
        const StopSignal stop("this test goes on");
        kill(getpid(), number);
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        if (stop.requested() || stop.asks_to_save()) _exit(1);
      }
      const StopSignal stop("this test goes on", "something is saved");
      for (int i = 0; i < 2; ++i) {
        if (stop.asks_to_save()) _exit(2);
        kill(getpid(), number);
        wait_until([&] { return stop.asks_to_save(); });
        stop.saved();
      }
      _exit(stop.requested() ? 3 : 7);
    });
    EXPECT_EQ(status, 7) << number;
  }
}

// Its stderr is a pipe that is full.
void let_nobody_read_stderr() {
  int ends[2];
  if (pipe(ends) != 0 || dup2(ends[1], STDERR_FILENO) < 0) _exit(125);
  fcntl(STDERR_FILENO, F_SETFL, O_NONBLOCK);
  const std::string page(4096, 'x');
  while (write(STDERR_FILENO, page.data(), page.size()) > 0) {
  }
  fcntl(STDERR_FILENO, F_SETFL, 0);
}

TEST(SignalsTest, SignalsAreHeardThoughNobodyReadsStderr) {
  const int second = status_of([] {
    let_nobody_read_stderr();
    const StopSignal stop("this test goes on");
    kill(getpid(), SIGUSR1);
    kill(getpid(), SIGTERM);
    wait_until([&] { return stop.requested(); });
    std::this_thread::sleep_for(std::chrono::milliseconds(150));
    kill(getpid(), SIGTERM);
    sleep_for_ever();
  });
  EXPECT_EQ(second, 128 + SIGTERM);
  const int held_up = status_of([] {
    let_nobody_read_stderr();
    const StopSignal stop("this test goes on");
    std::thread([] {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      kill(getpid(), SIGTERM);
    }).detach();
    log_warn("it waits for a reader until somebody wants an end");
    _exit(stop.exit_status());
  });
  EXPECT_EQ(held_up, 128 + SIGTERM);
}

TEST(SignalsTest, AWrongLevelOfMessagesDoesNotEndTheThreadOfSignals) {
  const int status = status_of([] {
    setenv("TRACESTEP_LOG", "QUIET", 1);
    const StopSignal stop("this test goes on");
    kill(getpid(), SIGTERM);
    wait_until([&] { return stop.requested(); });
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    _exit(7);
  });
  EXPECT_EQ(status, 7);
}

TEST(SignalsTest, WhatEndsTheProgramIsPassedOnToItsChild) {
  for (const bool is_early : {false, true}) {  // before the child is known, or after
    const int status = status_of([is_early] {
      const StopSignal stop("this test goes on");
      if (is_early) kill(getpid(), SIGHUP);
      if (is_early) wait_until([&] { return stop.requested(); });
      const pid_t child = fork();
      if (child == 0) {
        sigprocmask(SIG_SETMASK, &mask_before_signals(), nullptr);
        sleep_for_ever();
      }
      const PassedOn passed_on(child);
      kill(getpid(), SIGUSR1);  // this one is not
      if (!is_early) kill(getpid(), SIGHUP);
      int state = 0;
      waitpid(child, &state, 0);
      _exit(WIFSIGNALED(state) ? WTERMSIG(state) : 99);
    });
    EXPECT_EQ(status, SIGHUP);
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
