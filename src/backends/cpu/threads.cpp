#include "backends/cpu/threads.h"

#include <algorithm>
#include <latch>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "backends/cpu/team.h"
#include "base/cores.h"
#include "base/error.h"

namespace tracestep::cpu {

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
                fmt::format("use " TRACESTEP_OPTION(threads) " {}", started.size() + 1));
  }
  proven = threads;
}

void run_chunks(int threads, std::int64_t chunks, ChunkBody body, const void* context) {
  Team::of_this_thread().run(threads, chunks, body, context);
}

}  // namespace tracestep::cpu
