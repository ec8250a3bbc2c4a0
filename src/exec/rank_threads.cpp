#include "exec/rank_threads.h"

#include <system_error>

#include "base/error.h"

namespace tracestep {

RankThreads::RankThreads(int ranks) {
  try {
    for (int rank = 1; rank < ranks; ++rank) {
      threads_.emplace_back([this, rank] { serve(rank); });
    }
  } catch (const std::system_error& error) {
    stop();
    throw Error(ErrorCode::kFailed, "parallel",
                fmt::format("the threads of {} ranks could not be started: {}", ranks,
                            error.code().message()),
                "use fewer ranks");
  }
}

RankThreads::~RankThreads() {
  stop();
}

void RankThreads::stop() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

RankThreads::Failure RankThreads::run(const std::function<void(int)>& work,
                                      const std::function<void()>& failed) {
  {
    const std::lock_guard lock(mutex_);
    work_ = &work;
    failed_ = &failed;
    failure_ = {};
    working_ = threads_.size();
    ++round_;
  }
  wake_.notify_all();
  work_as(0);
  std::unique_lock lock(mutex_);
  done_.wait(lock, [this] { return working_ == 0; });
  return failure_;
}

void RankThreads::serve(int rank) {
  for (std::int64_t seen = 0;;) {
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [&] { return stop_ || round_ != seen; });
      if (stop_) return;
      seen = round_;
    }
    work_as(rank);
    const std::lock_guard lock(mutex_);
    if (--working_ == 0) done_.notify_one();
  }
}

void RankThreads::work_as(int rank) {
  try {
    (*work_)(rank);
  } catch (...) {
    {
      const std::lock_guard lock(mutex_);
      if (failure_.error) return;  // this rank was stopped by the first failure
      failure_ = {rank, std::current_exception()};
    }
    (*failed_)();
  }
}

}  // namespace tracestep
