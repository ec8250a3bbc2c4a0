// Processes that share no MPI: what they tell each other, and how they end together.
#include "backends/comm/tcp/tcp_processes.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <thread>

#include "base/error.h"

namespace tracestep {
namespace {

int free_port() {
  const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  EXPECT_EQ(::bind(socket, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  EXPECT_EQ(::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size), 0);
  ::close(socket);
  return ntohs(address.sin_port);
}

// Runs `work` in `count` processes that have joined; their exit statuses, 128 + signal for killed
// ones. A process that returns has status 0, one that throws 99. `stopped`: one that is killed when
// the others have ended.
std::vector<int> in_processes(int count, double timeout_s,
                              const std::function<void(Processes&)>& work, int stopped = -1) {
  const int port = free_port();
  std::vector<pid_t> children;
  for (int rank = 0; rank < count; ++rank) {
    const pid_t child = ::fork();
    if (child != 0) {
      children.push_back(child);
      continue;
    }
    try {
      const auto all = join_tcp({.rank = rank,
                                 .count = count,
                                 .local_rank = rank,
                                 .has_mpi = false,
                                 .host = "127.0.0.1",
                                 .port = port},
                                timeout_s);
      work(*all);
    } catch (const std::exception&) {
      ::_exit(99);
    }
    ::_exit(0);
  }
  std::vector<int> out(children.size());
  const auto wait_for = [&](std::size_t rank) {
    int state = 0;
    ::waitpid(children[rank], &state, 0);
    out[rank] = WIFEXITED(state) ? WEXITSTATUS(state) : 128 + WTERMSIG(state);
  };
  const auto last = static_cast<std::size_t>(stopped);
  for (std::size_t rank = 0; rank < out.size(); ++rank) {
    if (rank != last) wait_for(rank);
  }
  if (stopped >= 0) {
    ::kill(children[last], SIGKILL);
    wait_for(last);
  }
  return out;
}

void expect(bool condition) {
  if (!condition) ::_exit(98);
}

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
                        0.2),
               Error);
}

}  // namespace
}  // namespace tracestep
