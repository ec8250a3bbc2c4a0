#include "runtime/host_wait.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "base/env.h"
#include "base/error.h"
#include "runtime/rank_error.h"

namespace tracestep {
namespace {

constexpr std::chrono::duration<double> kBetweenLooks{0.2};
constexpr double kPatienceS = 1.0;

// The waiting threads and the watching one share this state. Never destroyed: waits may be the last
// thing that a process does.
struct Waits {
  std::atomic<bool> are_watched{false};
  std::atomic<std::int64_t> looks{0};  // the watcher's clock
  std::atomic<std::int64_t> step{0};
  std::mutex mutex;
  std::vector<const HostWait*> open;  // as they began
};

Waits& waits() {
  static Waits* const shared = new Waits;
  return *shared;
}

// Once the oldest wait has taken `limit_s`, returns a message that says what the innermost is for.
std::optional<std::string> overdue(double limit_s) {
  Waits& all = waits();
  const std::lock_guard lock(all.mutex);
  if (all.open.empty() || all.open.front()->seconds() < limit_s) return std::nullopt;
  const std::int64_t step = all.step;
  return fmt::format("it has waited for {} for {:.0f} s{}", all.open.back()->what(),
                     all.open.front()->seconds(),
                     step > 0 ? fmt::format(", in step {}", step) : "");
}

void watch(const std::stop_token& stop, Processes& processes, double limit_s) {
  std::mutex mutex;
  std::unique_lock lock(mutex);
  std::condition_variable_any pause;
  while (!stop.stop_requested()) {
    pause.wait_for(lock, stop, kBetweenLooks, [] { return false; });
    ++waits().looks;
    const std::optional<std::string> what = overdue(limit_s);
    if (!what) continue;
    const RankError error(
        processes.rank(), *what,
        fmt::format("another rank hangs, or {} is shorter than a step", env::kCommTimeout.name));
    processes.end_all(fmt::format("tracestep: {}", error.what()), exit_code(error.code()));
  }
}

}  // namespace

HostWait::HostWait(const char* what) : what_(what) {
  Waits& all = waits();
  if (!all.are_watched) return;
  since_ = all.looks;
  const std::lock_guard lock(all.mutex);
  all.open.push_back(this);
}

HostWait::~HostWait() {
  if (since_ < 0) return;
  const std::lock_guard lock(waits().mutex);
  std::erase(waits().open, this);
}

double HostWait::seconds() const {
  return static_cast<double>(waits().looks - since_) * kBetweenLooks.count();
}

void enter_step(std::int64_t number) {
  waits().step = number;
}

WaitWatch::WaitWatch(Processes& processes, double timeout_s)
    : thread_([&processes, limit_s = timeout_s + kPatienceS](const std::stop_token& stop) {
        watch(stop, processes, limit_s);
      }) {
  waits().are_watched = true;
}

WaitWatch::~WaitWatch() {
  waits().are_watched = false;
}

}  // namespace tracestep
