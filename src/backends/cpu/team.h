// The threads that share the work of one master, which takes chunks as they do. A helper that is
// late, since its core has the work of another process to do, finds nothing left: nobody waits
// for it, but for the end of a chunk that it holds. Helpers that find nothing spin for some tens
// of microseconds and then sleep; work that would be done before they woke is done without them.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <limits>
#include <memory>
#include <thread>
#include <vector>

#include "backends/cpu/threads.h"

namespace tracestep::cpu {

class Team {
 public:
  // The team of the calling thread. Its helpers start when they are first asked for, and end with
  // this thread. In a child of fork() it has none: there its master works alone.
  static Team& of_this_thread();

  Team();
  ~Team();
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  // As run_chunks(). Where fewer helpers could be started, those that are there do it.
  void run(int threads, std::int64_t chunks, ChunkBody body, const void* context);

 private:
  struct Job;

  // The time of a body's chunks, one after the other, when it last ran in as many.
  struct Cost {
    ChunkBody body = nullptr;
    std::int64_t chunks = 0, ticks = 0;
  };

  // Tells whether sharing pays of late: beside busy processes a helper may lose its core with a
  // chunk in hand, and its master then waits for longer than it would have worked.
  struct Gain {
    std::int64_t alone = 0, shared = 0;  // ticks, the first by what the master's chunks took
    std::int64_t rest = 0, rests_until = 0;

    void judge(std::int64_t of_all, std::int64_t start, std::int64_t end);
  };

  static constexpr std::int64_t kUnknown = std::numeric_limits<std::int64_t>::max();

  static std::size_t class_of(std::int64_t ticks);
  Cost& cost_of(ChunkBody body, std::int64_t chunks);
  void start_helpers(int count);

  std::unique_ptr<Job> job_;
  std::vector<std::thread> helpers_;
  std::array<Cost, 512> costs_;
  std::array<Gain, 4> gains_;  // of works of less than 20, 100 and 1000 µs, and of longer ones
  std::int64_t owed_ = 0;      // ticks of work shared while helpers slept
  int process_;
};

}  // namespace tracestep::cpu
