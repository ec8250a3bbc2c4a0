#include "base/signals.h"

#include <pthread.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>

#include "base/error.h"
#include "base/log.h"

namespace tracestep {
namespace {

struct Taken {
  int number;
  const char* name;
};
using Clock = std::chrono::steady_clock;
// timeout(1) sends its signal to the program and to the program's group: that is one wish.
constexpr std::chrono::milliseconds kEcho{100};
constexpr std::array<Taken, 3> kTaken = {
    {{SIGINT, "SIGINT"}, {SIGTERM, "SIGTERM"}, {SIGHUP, "SIGHUP"}}};

const char* name_of(int number) {
  for (const Taken& taken : kTaken) {
    if (taken.number == number) return taken.name;
  }
  return "a signal";
}

// What the waiting thread and StopSignal share. Never destroyed: the thread outlives main().
struct State {
  std::mutex mutex;
  std::optional<std::string> what_follows;  // of the StopSignal that is alive
  std::atomic<int> received{0};             // by it
  Clock::time_point received_at;
};

State& state() {
  static State* const shared = new State;
  return *shared;
}

sigset_t& mask_before() {
  static sigset_t mask = [] {
    sigset_t current;
    pthread_sigmask(SIG_SETMASK, nullptr, &current);
    return current;
  }();
  return mask;
}

bool is_ignored(int number) {
  struct sigaction action {};
  sigaction(number, nullptr, &action);
  return action.sa_handler == SIG_IGN;
}

// Unblocks the signal and raises it, so that the parent process sees which one ended this process.
[[noreturn]] void die_of(int number) {
  sigset_t one;
  sigemptyset(&one);
  sigaddset(&one, number);
  ::kill(::getpid(), number);
  pthread_sigmask(SIG_UNBLOCK, &one, nullptr);
  ::_exit(128 + number);
}

void hear(int number) {
  State& shared = state();
  const std::lock_guard lock(shared.mutex);
  if (!shared.what_follows) die_of(number);
  if (shared.received == number && Clock::now() - shared.received_at < kEcho) return;
  if (shared.received != 0) ::_exit(128 + number);
  shared.received_at = Clock::now();
  shared.received = number;
  log_warn("{} received: {}; another one ends the program at once", name_of(number),
           *shared.what_follows);
}

void* wait_for(void* set) {
  const std::unique_ptr<sigset_t> taken(static_cast<sigset_t*>(set));
  for (;;) {
    int number = 0;
    if (sigwait(taken.get(), &number) == 0) hear(number);
  }
}

// Sets the thread's stack size instead of taking the default from `ulimit -s`, which could keep the
// program from starting.
void start_waiting(const sigset_t& set) {
  constexpr std::size_t kStackBytes = std::size_t{256} << 10;
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, kStackBytes);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  auto taken = std::make_unique<sigset_t>(set);
  pthread_t thread{};
  const int error = pthread_create(&thread, &attributes, wait_for, taken.get());
  pthread_attr_destroy(&attributes);
  if (error != 0) {
    throw Error(ErrorCode::kFailed, "signals",
                fmt::format("no thread can be started: {}", std::strerror(error)));
  }
  (void)taken.release();
}

}  // namespace

void take_signals() {
  static bool done = false;
  TRACESTEP_CHECK(!done, "signals are taken already");
  done = true;
  mask_before();
  state();
  std::signal(SIGXFSZ, SIG_IGN);
  std::signal(SIGPIPE, SIG_IGN);
  sigset_t set;
  sigemptyset(&set);
  for (const Taken& taken : kTaken) {
    if (!is_ignored(taken.number)) sigaddset(&set, taken.number);
  }
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  start_waiting(set);
}

const sigset_t& mask_before_signals() {
  return mask_before();
}

void end_by_broken_pipe() {
  std::signal(SIGPIPE, SIG_DFL);
  die_of(SIGPIPE);
}

StopSignal::StopSignal(std::string what_follows) {
  State& shared = state();
  const std::lock_guard lock(shared.mutex);
  TRACESTEP_CHECK(!shared.what_follows, "two StopSignals at a time");
  shared.what_follows = std::move(what_follows);
  shared.received = 0;
}

StopSignal::~StopSignal() {
  const std::lock_guard lock(state().mutex);
  state().what_follows.reset();
}

int StopSignal::signal_number() const {
  return state().received;
}

}  // namespace tracestep
