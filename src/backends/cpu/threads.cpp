#include "backends/cpu/threads.h"

#include <omp.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <latch>
#include <limits>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "backends/cpu/cpu_device.h"
#include "base/cores.h"
#include "base/error.h"

namespace tracestep::cpu {
namespace {

// Without pinning, a worker woken after a pause can be placed on the core where its master already
// spins, which costs milliseconds. Only a team that fills all allowed cores is pinned (a smaller
// one may share the machine with others), and of several masters only the first one's. Threads and
// processes that a master starts later call leave_core().
std::atomic<bool> may_pin = true;

bool team_is_pinned(int team) {
  if (!may_pin) return false;
  static std::atomic<bool> taken = false;
  thread_local const bool is_first = !taken.exchange(true);
  return is_first && team == static_cast<int>(cores_at_start().size()) &&
         omp_get_proc_bind() == omp_proc_bind_false;
}

void pin_once(int thread) {
  thread_local bool done = false;
  if (done) return;
  done = true;
  bind_to_core(cores_at_start()[static_cast<std::size_t>(thread)]);
}

// The exception of the lowest chunk, so that a message does not depend on the threads either.
class FirstError {
 public:
  void capture(std::int64_t chunk) {
    const std::lock_guard lock(mutex_);
    if (chunk >= chunk_) return;
    chunk_ = chunk;
    error_ = std::current_exception();
  }
  void rethrow() const {
    if (error_) std::rethrow_exception(error_);
  }

 private:
  std::mutex mutex_;
  std::int64_t chunk_ = std::numeric_limits<std::int64_t>::max();
  std::exception_ptr error_;
};

// Calls work(0), …, work(threads - 1), each in a thread of the team.
#ifdef __SANITIZE_THREAD__
// libgomp is not compiled with ThreadSanitizer, which would take what its barriers order for races.
template <class Work>
void in_team(int threads, const Work& work) {
  std::vector<std::jthread> others;
  for (int thread = 1; thread < threads; ++thread) {
    others.emplace_back([&work, thread] { work(thread); });
  }
  work(0);
}
#else
template <class Work>
void in_team(int threads, const Work& work) {
  // The team size never varies: libgomp ends and restarts threads when it does.
#pragma omp parallel num_threads(threads)
  work(omp_get_thread_num());
}
#endif

}  // namespace

int allowed_cores() {
  // With OMP_PROC_BIND the master is bound before main(): OpenMP still knows all the cores.
  return std::max({1, static_cast<int>(cores_at_start().size()), omp_get_num_procs()});
}

int threads_of(const void* stream) {
  static const int all = allowed_cores();
  return stream != nullptr ? static_cast<const CpuThreads*>(stream)->count : all;
}

void require_threads(int threads) {
  static std::mutex mutex;
  static int proven = 1;
  const std::lock_guard lock(mutex);
  if (threads <= proven) return;
  std::latch all_are_there(1);
  std::vector<std::thread> started;  // the one that asks is there already
  started.reserve(static_cast<std::size_t>(threads) - 1);
  std::string failure;
  try {
    for (int i = 1; i < threads; ++i) started.emplace_back([&] { all_are_there.wait(); });
  } catch (const std::system_error& error) {
    failure = error.code().message();
  }
  all_are_there.count_down();
  for (std::thread& thread : started) thread.join();
  if (!failure.empty()) {
    throw Error(ErrorCode::kFailed, "cpu",
                fmt::format("{} threads could not be started: {}", threads, failure),
                fmt::format("use option threads {}", started.size() + 1));
  }
  proven = threads;
}

void run_chunks(int threads, std::int64_t chunks, ChunkBody body, const void* context) {
  if (threads <= 1 || chunks <= 1) {
    for (std::int64_t i = 0; i < chunks; ++i) body(context, i, 0);
    return;
  }
  const bool pinned = team_is_pinned(threads);
  std::atomic<std::int64_t> next = 0;
  FirstError error;
  in_team(threads, [&](int thread) {
    if (pinned) pin_once(thread);
    for (std::int64_t i = next++; i < chunks; i = next++) {
      try {
        body(context, i, thread);
      } catch (...) {
        error.capture(i);
      }
    }
  });
  error.rethrow();
}

}  // namespace tracestep::cpu

void tracestep::leave_threads_unbound() {
  cpu::may_pin = false;
}
