// How threads share chunks: each is done once, whoever comes.
#include "backends/cpu/team.h"

#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <stdexcept>
#include <string>

#include <gtest/gtest.h>

#include "base/cores.h"

namespace tracestep::cpu {
namespace {

using Body = std::function<void(std::int64_t chunk, int thread)>;

void share(int threads, std::int64_t chunks, const Body& body) {
  Team::of_this_thread().run(
      threads, chunks,
      [](const void* context, std::int64_t chunk, int thread) {
        (*static_cast<const Body*>(context))(chunk, thread);
      },
      &body);
}

void be_busy(std::chrono::microseconds time) {
  const auto end = std::chrono::steady_clock::now() + time;
  while (std::chrono::steady_clock::now() < end) {
  }
}

// True if each of `chunks` was done once, by one of `threads` threads.
bool each_once(int threads, std::int64_t chunks, std::chrono::microseconds time = {}) {
  std::vector<std::atomic<int>> done(static_cast<std::size_t>(chunks));
  std::atomic<bool> is_fine = true;
  share(threads, chunks, [&](std::int64_t chunk, int thread) {
    be_busy(time);
    ++done[static_cast<std::size_t>(chunk)];
    if (thread < 0 || thread >= threads) is_fine = false;
  });
  for (const std::atomic<int>& times : done) is_fine = is_fine && times == 1;
  return is_fine;
}

TEST(TeamTest, EveryChunkIsDoneOnce) {
  for (int round = 0; round < 300; ++round) {
    for (const int threads : {1, 2, 3, 5}) {
      ASSERT_TRUE(each_once(threads, (round * 7 + threads) % 40));
    }
  }
  EXPECT_TRUE(each_once(4, 100'000));
}

TEST(TeamTest, LongChunksAreSharedAndHelpersWakeAfterAPause) {
  // Beside other work a helper may come late, or rest: not for ever.
  int rounds_with_help = 0;
  for (int round = 0; round < 1000 && rounds_with_help < 3; ++round) {
    std::atomic<std::int64_t> of_helpers = 0;
    share(2, 20, [&](std::int64_t, int thread) {
      be_busy(std::chrono::milliseconds(1));
      if (thread == 1) ++of_helpers;
    });
    if (of_helpers > 0) ++rounds_with_help;
    ::usleep(5'000);  // longer than a helper spins
  }
  EXPECT_EQ(rounds_with_help, allowed_cores() > 1 ? 3 : rounds_with_help);
}

TEST(TeamTest, TheErrorOfTheLowestChunkArrives) {
  for (int round = 0; round < 50; ++round) {
    std::string message;
    try {
      share(3, 30, [](std::int64_t chunk, int) {
        be_busy(std::chrono::microseconds(5));
        if (chunk >= 4) throw std::runtime_error("chunk " + std::to_string(chunk));
      });
    } catch (const std::runtime_error& error) {
      message = error.what();
    }
    ASSERT_EQ(message, "chunk 4");
    ASSERT_TRUE(each_once(3, 30));
  }
}

TEST(TeamTest, AChunkMayShareWorkItself) {
  std::atomic<int> done = 0;
  share(3, 9, [&](std::int64_t, int) {
    be_busy(std::chrono::microseconds(20));
    share(3, 5, [&](std::int64_t, int) { ++done; });
  });
  EXPECT_EQ(done, 45);
}

TEST(TeamTest, EveryThreadHasATeamOfItsOwn) {
  std::atomic<int> fine = 0;
  {
    std::vector<std::jthread> masters;
    for (int i = 0; i < 4; ++i) {
      masters.emplace_back([&] {
        bool is_fine = true;
        for (int round = 0; round < 50; ++round) {
          is_fine = is_fine && each_once(3, 20, std::chrono::microseconds(3));
        }
        fine += is_fine ? 1 : 0;
      });
    }
  }
  EXPECT_EQ(fine, 4);
}

TEST(TeamTest, AForkWorksAlone) {
  ASSERT_TRUE(each_once(3, 20, std::chrono::microseconds(50)));
  const pid_t child = ::fork();
  if (child == 0) ::_exit(each_once(3, 20, std::chrono::microseconds(50)) ? 0 : 1);
  int state = 0;
  ASSERT_EQ(::waitpid(child, &state, 0), child);
  EXPECT_TRUE(WIFEXITED(state));
  EXPECT_EQ(WEXITSTATUS(state), 0);
  EXPECT_TRUE(each_once(3, 20, std::chrono::microseconds(50)));
}

}  // namespace
}  // namespace tracestep::cpu
