// Threads that help a master thread with its work; the master and the helpers take chunks in turn.
// A helper that comes late, because its core runs another process, finds nothing left, and nobody
// waits for it unless it holds a chunk. Helpers without work spin for 200 microseconds and
// then sleep; work that would be done before they woke is done without them.
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
  // Returns the team of the calling thread. Its helpers start when they are first needed, and end
  // with this thread. After fork(), the child has no helpers, and its master works alone.
  static Team& of_this_thread();

  Team();
  ~Team();
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  // Runs all chunks, as run_chunks() does. Helpers that could not be started are done without.
  void run(int threads, std::int64_t chunks, ChunkBody body, const void* context);

 private:
  struct Job;

  // The time that a body's chunks take one after the other, from its last run with the same number
  // of chunks.
  struct Cost {
    ChunkBody body = nullptr;
    std::int64_t chunks = 0, ticks = 0;
  };

  // Whether sharing has paid recently. Next to busy processes, a helper may lose its core while it
  // holds a chunk, and the master then waits for longer than it would have worked.
  struct Gain {
    // Times in ticks; `alone` is estimated from the chunks that the master computed.
    std::int64_t alone = 0, shared = 0;
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
  std::array<Gain, 4> gains_;  // For work of less than 20, 100 and 1000 µs, and for longer work.
  std::int64_t owed_ = 0;      // Ticks of work that was shared while helpers were asleep.
  int process_;
};

}  // namespace tracestep::cpu
