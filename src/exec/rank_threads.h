// Runs one thread for each rank of a group in this process.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace tracestep {

class RankThreads {
 public:
  // Starts ranks - 1 threads: rank 0 is the caller's. Throws Error{kFailed} when one cannot start.
  explicit RankThreads(int ranks);
  ~RankThreads();
  RankThreads(const RankThreads&) = delete;
  RankThreads& operator=(const RankThreads&) = delete;

  // The first rank that threw, and its exception.
  struct Failure {
    int rank = 0;
    std::exception_ptr error;  // Empty: no rank threw.
  };
  // Calls work(rank) for every rank and waits for all of them. When one throws, `failed` is called
  // once, immediately and on that thread: it must make the others stop waiting for that rank.
  Failure run(const std::function<void(int rank)>& work, const std::function<void()>& failed);

 private:
  void serve(int rank);
  void stop();
  void work_as(int rank);

  std::mutex mutex_;
  std::condition_variable wake_, done_;
  const std::function<void(int)>* work_ = nullptr;
  const std::function<void()>* failed_ = nullptr;
  Failure failure_;
  std::int64_t round_ = 0;
  std::size_t working_ = 0;  // The number of threads that have not finished this round.
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace tracestep
