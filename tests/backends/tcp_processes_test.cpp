// Processes that share no MPI: what they tell each other, and how they end together.
#include "backends/comm/tcp/tcp_processes.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <barrier>
#include <csignal>
#include <functional>
#include <thread>

#include "backends/comm/tcp/connection.h"
#include "backends/comm/tcp/handshake.h"
#include "backends/comm/tcp/messages.h"
#include "base/error.h"
#include "support/joined_processes.h"

namespace tracestep {
namespace {

using testing::expect;
using testing::free_port;
using testing::in_processes;

TEST(TcpProcessesTest, EveryoneGetsEveryonesValueAndTheBytesOfTheFirst) {
  const auto statuses = in_processes(3, 20, [](Processes& all) {
    for (std::uint64_t round = 0; round < 50; ++round) {
      const auto values = all.exchange(round * 10 + static_cast<std::uint64_t>(all.rank()));
      expect(values == std::vector<std::uint64_t>{round * 10, round * 10 + 1, round * 10 + 2});
      std::array<std::byte, 128> bytes{};
      if (all.rank() == 0) bytes.fill(std::byte(round));
      all.broadcast(bytes);
      expect(bytes[0] == std::byte(round) && bytes[127] == std::byte(round));
    }
  });
  EXPECT_EQ(statuses, (std::vector<int>{0, 0, 0}));
}

TEST(TcpProcessesTest, OneThatFailsEndsAllWithItsStatus) {
  for (const int failing : {0, 2}) {
    const auto statuses = in_processes(3, 20, [&](Processes& all) {
      if (all.rank() == failing) all.end_all("planned failure", 7);
      all.exchange(1);
    });
    EXPECT_EQ(statuses, (std::vector<int>{7, 7, 7})) << failing;
  }
}

// A thread that waits for an answer and the one that watches may find a fault in the same moment.
TEST(TcpProcessesTest, OneLineIsWrittenHoweverManyThreadsEndAll) {
  constexpr int kRounds = 30, kThreads = 4;
  ::testing::internal::CaptureStderr();
  for (int round = 0; round < kRounds; ++round) {
    in_processes(2, 20, [](Processes& all) {
      std::barrier together(kThreads);
      std::vector<std::thread> threads;
      for (int i = 0; i < kThreads && all.rank() == 0; ++i) {
        threads.emplace_back([&] {
          together.arrive_and_wait();
          all.end_all("planned failure", 7);
        });
      }
      for (std::thread& one : threads) one.join();
      all.exchange(1);
    });
  }
  const std::string said = ::testing::internal::GetCapturedStderr();
  int lines = 0;
  for (std::size_t at = 0; (at = said.find("planned failure\n", at)) != said.npos; ++at) ++lines;
  EXPECT_EQ(lines, kRounds) << said;
}

TEST(TcpProcessesTest, OneThatIsKilledEndsAll) {
  const auto statuses = in_processes(3, 20, [](Processes& all) {
    if (all.rank() == 1) ::kill(::getpid(), SIGKILL);
    all.exchange(1);
  });
  EXPECT_EQ(statuses, (std::vector<int>{1, 128 + SIGKILL, 1}));
}

TEST(TcpProcessesTest, OneThatHangsIsAnErrorAfterTheTimeLimit) {
  const auto statuses = in_processes(2, 0.5, [](Processes& all) {
    if (all.rank() == 1) std::this_thread::sleep_for(std::chrono::seconds(2));
    try {
      all.exchange(1);
    } catch (const Error& e) {
      expect(e.where() == "rank 1");
      all.end_all("it hangs", 5);
    }
  });
  EXPECT_EQ(statuses, (std::vector<int>{5, 5}));
}

TEST(TcpProcessesTest, ThereIsNoTimeLimitBehindWorkOfTheFirstAlone) {
  const auto statuses = in_processes(3, 0.5, [](Processes& all) {
    if (all.rank() == 0) std::this_thread::sleep_for(std::chrono::seconds(1));
    all.wait_for_first();
    expect(all.exchange(7) == std::vector<std::uint64_t>{7, 7, 7});
  });
  EXPECT_EQ(statuses, (std::vector<int>{0, 0, 0}));
  const auto lost = in_processes(3, 20, [](Processes& all) {
    if (all.rank() == 0) all.end_all("planned failure", 7);
    all.wait_for_first();
  });
  EXPECT_EQ(lost, (std::vector<int>{7, 7, 7}));
}

// The status of process 0 of two, which does `work`, beside a rank 1 that knows the secret and then
// says `words` again and again; -1: it does not end.
int status_beside(std::span<const std::byte> words, const std::function<void(Processes&)>& work) {
  const int port = free_port();
  const pid_t first = ::fork();
  if (first == 0) {
    {
      const auto all =
          join_tcp({.rank = 0, .count = 2, .host = "127.0.0.1", .port = port}, std::nullopt, 0.5);
      work(*all);
    }
    ::_exit(0);
  }
  Connection to;
  const auto deadline = deadline_after(10);
  while (to.socket() < 0) to = connect_to("127.0.0.1", port, deadline);
  Greeting greeting;
  Proof proof{};
  EXPECT_TRUE(to.read(std::as_writable_bytes(std::span(&greeting, 1)), deadline));
  const Hello hello = answer_to(greeting, Secret{}, 1, 2, Nonce{}).value();
  EXPECT_TRUE(to.write(std::as_bytes(std::span(&hello, 1)), deadline));
  EXPECT_TRUE(to.read(std::as_writable_bytes(std::span(&proof, 1)), deadline));
  int state = 0;
  const auto patience = deadline_after(5);
  while (::waitpid(first, &state, WNOHANG) == 0) {
    if (Clock::now() > patience) {
      ::kill(first, SIGKILL);
      ::waitpid(first, &state, 0);
      return -1;
    }
    to.write(words, deadline);
    std::this_thread::sleep_for(std::chrono::milliseconds(60));
  }
  return WIFEXITED(state) ? WEXITSTATUS(state) : -1;
}

TEST(TcpProcessesTest, OneThatLivesForEverButDoesNotEndIsAnErrorAfterTheTimeLimit) {
  const MessageHeader alive{.kind = MessageKind::kAlive};
  EXPECT_EQ(status_beside(std::as_bytes(std::span(&alive, 1)), [](Processes&) {}), 1);
}

TEST(TcpProcessesTest, BytesThatMakeNoMessageAreNoSignOfLife) {
  const std::byte zero{};
  EXPECT_EQ(status_beside({&zero, 1},
                          [](Processes&) { std::this_thread::sleep_for(std::chrono::seconds(9)); }),
            1);
}

TEST(TcpProcessesTest, OneThatIsStoppedEndsAllWhileTheOthersAreBusy) {
  for (const int stopped : {0, 1}) {
    const auto statuses = in_processes(
        2, 0.7,
        [&](Processes& all) {
          all.exchange(1);
          if (all.rank() == stopped) ::raise(SIGSTOP);
          std::this_thread::sleep_for(std::chrono::seconds(30));
        },
        stopped);
    for (int rank = 0; rank < 2; ++rank) {
      EXPECT_EQ(statuses[static_cast<std::size_t>(rank)], rank == stopped ? 128 + SIGKILL : 1);
    }
  }
}

TEST(TcpProcessesTest, OneThatDiffersIsNamed) {
  const auto statuses = in_processes(3, 20, [](Processes& all) {
    try {
      check_same(all, "its program", all.rank() == 2 ? 5 : 4);
      ::_exit(1);
    } catch (const Error& e) {
      expect(e.where() == "rank 2" && e.message() == "its program differs from that of rank 0");
    }
  });
  EXPECT_EQ(statuses, (std::vector<int>{0, 0, 0}));
}

TEST(TcpProcessesTest, OneThatDoesNotComeIsAnError) {
  EXPECT_THROW(join_tcp({.rank = 0,
                         .count = 2,
                         .local_rank = 0,
                         .has_mpi = false,
                         .host = "127.0.0.1",
                         .port = free_port()},
                        std::nullopt, 0.2),
               Error);
}

}  // namespace
}  // namespace tracestep
