#include "train/signals.h"

#include <unistd.h>

#include <atomic>

#include "base/error.h"

namespace tracestep {
namespace {

constexpr std::array<int, 2> kSignals = {SIGINT, SIGTERM};

std::atomic<int> received{0};
std::atomic<bool> installed{false};
// What a signal handler may touch.
static_assert(std::atomic<int>::is_always_lock_free);

void handle(int number) {
  int none = 0;
  if (!received.compare_exchange_strong(none, number)) ::_exit(128 + number);
}

}  // namespace

StopSignal::StopSignal() {
  TRACESTEP_CHECK(!installed.exchange(true), "two StopSignals at a time");
  received = 0;
  struct sigaction action {};
  action.sa_handler = handle;
  action.sa_flags = SA_RESTART;  // file writes under way go on
  sigemptyset(&action.sa_mask);
  for (std::size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &action, &previous_[i]);
}

StopSignal::~StopSignal() {
  for (std::size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &previous_[i], nullptr);
  installed = false;
}

int StopSignal::signal_number() const {
  return received;
}

}  // namespace tracestep
