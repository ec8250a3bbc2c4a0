#include "support/joined_processes.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "backends/comm/tcp/tcp_processes.h"

namespace tracestep::testing {

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

std::vector<int> in_processes(int count, double timeout_s,
                              const std::function<void(Processes&)>& work, int stopped) {
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
                                std::nullopt, timeout_s);
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

}  // namespace tracestep::testing
