// Divides work on many elements among short-lived threads. It is for work that happens once, such
// as filling or quantizing weights; kernels use a lasting team of threads instead.
#pragma once

#include <algorithm>
#include <cstdint>
#include <system_error>
#include <thread>
#include <vector>

namespace tracestep {

// Calls `work(begin, end)` on ranges that cover [0, count), at the same time on each hardware
// thread; on one range alone for fewer than `smallest` elements. `work` must not throw.
template <typename Work>
void in_shares(std::int64_t count, std::int64_t smallest, const Work& work) {
  const auto workers = static_cast<std::int64_t>(
      count < smallest ? 1 : std::max(1u, std::thread::hardware_concurrency()));
  std::vector<std::jthread> threads;
  for (std::int64_t w = 1; w < workers; ++w) {
    const auto share = [&work, count, workers, w] {
      work(count * w / workers, count * (w + 1) / workers);
    };
    try {
      threads.emplace_back(share);
      // The system gives no more threads, so this thread does the work.
    } catch (const std::system_error&) {
      share();
    }
  }
  work(0, count / workers);
}

}  // namespace tracestep
