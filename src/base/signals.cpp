#include "base/signals.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>

#include "base/error.h"
#include "base/log.h"

namespace tracestep {
namespace {

enum class Wish { kEnd, kSave };
struct Taken {
  int number;
  const char* name;
  Wish wish = Wish::kEnd;
};
using Clock = std::chrono::steady_clock;
// A signal that repeats within this time counts once: timeout(1) signals the program and its group.
constexpr std::chrono::milliseconds kEcho{100};
// The signals that are taken; those without kSave ask to end. SIGALRM and SIGXCPU are limits of
// time (`alarm`, `ulimit -S -t`); job systems send SIGUSR1 or SIGUSR2 before a limit.
constexpr std::array<Taken, 7> kTaken = {{{SIGINT, "SIGINT"},
                                          {SIGTERM, "SIGTERM"},
                                          {SIGHUP, "SIGHUP"},
                                          {SIGALRM, "SIGALRM"},
                                          {SIGXCPU, "SIGXCPU"},
                                          {SIGUSR1, "SIGUSR1", Wish::kSave},
                                          {SIGUSR2, "SIGUSR2", Wish::kSave}}};

// The waiting thread and StopSignal share this state. Never destroyed: the thread outlives main().
struct State {
  std::mutex mutex;
  bool is_listening = false;          // true while a StopSignal exists
  std::string what_follows, at_save;  // texts of the StopSignal
  std::atomic<int> received{0};       // number of the first ending signal; 0: none
  std::atomic<bool> asks_to_save{false};
  Clock::time_point received_at;
  pid_t child = 0;  // of the PassedOn that is alive
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

// Notes a signal to end and passes it to a child, or ends the process; returns a line to log.
std::string hear_end(State& shared, const Taken& taken) {
  const bool is_echo = shared.received == taken.number && Clock::now() - shared.received_at < kEcho;
  if (shared.received != 0 && (is_echo || taken.number == SIGXCPU)) return {};
  if (shared.received != 0) ::_exit(128 + taken.number);
  if (shared.child > 0) ::kill(shared.child, taken.number);
  if (!shared.is_listening) die_of(taken.number);
  shared.received_at = Clock::now();
  shared.received = taken.number;
  let_messages_be_lost(true);
  return fmt::format("{} received: {}; another one ends the program at once", taken.name,
                     shared.what_follows);
}

std::string hear_save(State& shared, const Taken& taken) {
  if (!shared.is_listening || shared.at_save.empty()) {
    return fmt::format("{} received: there is nothing to save, and the program goes on",
                       taken.name);
  }
  shared.asks_to_save = true;
  return fmt::format("{} received: {}", taken.name, shared.at_save);
}

// Does what a signal asks for. Then writes the line that confirms it, unless this would have to
// wait: stderr may be a pipe that nobody reads.
void hear(const Taken& taken) {
  State& shared = state();
  std::unique_lock lock(shared.mutex);
  const std::string line =
      taken.wish == Wish::kEnd ? hear_end(shared, taken) : hear_save(shared, taken);
  lock.unlock();
  if (!line.empty()) log_at_once(LogLevel::kWarn, line);
}

void* wait_for(void* set) {
  const std::unique_ptr<sigset_t> taken(static_cast<sigset_t*>(set));
  for (;;) {
    int number = 0;
    if (sigwait(taken.get(), &number) != 0) continue;
    try {
      hear(*std::ranges::find(kTaken, number, &Taken::number));
    } catch (...) {  // no memory for the line
    }
  }
}

// Starts the thread that waits for the signals, with a stack size of its own: the default is that
// of `ulimit -s`, which could keep the program from starting.
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

PassedOn::PassedOn(pid_t process) {
  State& shared = state();
  const std::lock_guard lock(shared.mutex);
  TRACESTEP_CHECK(shared.child == 0, "two children at a time");
  shared.child = process;
  if (shared.received != 0) ::kill(process, shared.received);
}

PassedOn::~PassedOn() {
  const std::lock_guard lock(state().mutex);
  state().child = 0;
}

StopSignal::StopSignal(std::string what_follows, std::string at_save) {
  State& shared = state();
  const std::lock_guard lock(shared.mutex);
  TRACESTEP_CHECK(!shared.is_listening, "two StopSignals at a time");
  shared.is_listening = true;
  shared.what_follows = std::move(what_follows);
  shared.at_save = std::move(at_save);
  shared.received = 0;
  shared.asks_to_save = false;
  let_messages_be_lost(false);
}

StopSignal::~StopSignal() {
  State& shared = state();
  const std::lock_guard lock(shared.mutex);
  shared.is_listening = false;
  shared.received = 0;
}

int StopSignal::signal_number() const {
  return state().received;
}

void StopSignal::take_over(int number) const {
  State& shared = state();
  const std::lock_guard lock(shared.mutex);
  if (shared.received != 0) return;
  shared.received_at = Clock::now();
  shared.received = number;
  let_messages_be_lost(true);
}

bool StopSignal::asks_to_save() const {
  return state().asks_to_save;
}

void StopSignal::saved() const {
  state().asks_to_save = false;
}

}  // namespace tracestep
