#include "backends/comm/tcp/connection.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "base/error.h"

namespace tracestep {
namespace {

using Clock = std::chrono::steady_clock;

[[noreturn]] void fail(const std::string& message, const std::string& hint = {}) {
  throw Error(ErrorCode::kFailed, "processes", message, hint);
}

void send_at_once(int socket) {
  const int on = 1;
  ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

Connection listen_on(int port, int backlog) {
  Connection out(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  ::setsockopt(out.socket(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_ANY);
  if (::bind(out.socket(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 ||
      ::listen(out.socket(), backlog) != 0) {
    fail(fmt::format("port {} cannot be used: {}", port, std::strerror(errno)),
         fmt::format("choose another one by {}", env::kMasterPort.name));
  }
  return out;
}

// At least 0.
int milliseconds_until(Clock::time_point deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
  return static_cast<int>(std::max<std::int64_t>(0, left.count()));
}

// The others connect in any order; each sends its rank.
std::vector<Connection> accept_all(const Launched& self, Clock::time_point deadline) {
  const Connection listener = listen_on(self.port, self.count);
  std::vector<Connection> out(static_cast<std::size_t>(self.count) - 1);
  for (int come = 1; come < self.count; ++come) {
    pollfd waiting{listener.socket(), POLLIN, 0};
    if (::poll(&waiting, 1, milliseconds_until(deadline)) <= 0) {
      fail(fmt::format("{} of {} processes have come to port {}", come, self.count, self.port),
           "start as many as WORLD_SIZE says");
    }
    Connection one(::accept4(listener.socket(), nullptr, nullptr, SOCK_CLOEXEC));
    std::int32_t rank = 0;
    if (!one.read(std::as_writable_bytes(std::span(&rank, 1)))) fail("a process went at once");
    if (rank < 1 || rank >= self.count || out[static_cast<std::size_t>(rank - 1)].socket() >= 0) {
      fail(fmt::format("two processes are rank {}, or it is beyond the {} of this run", rank,
                       self.count));
    }
    send_at_once(one.socket());
    out[static_cast<std::size_t>(rank - 1)] = std::move(one);
  }
  return out;
}

// Whether it is there before the deadline: a host that cannot be reached does not say so.
bool connects(int socket, const addrinfo& to, Clock::time_point deadline) {
  if (::connect(socket, to.ai_addr, to.ai_addrlen) == 0) return true;
  pollfd waiting{socket, POLLOUT, 0};
  if (errno != EINPROGRESS || ::poll(&waiting, 1, milliseconds_until(deadline)) <= 0) return false;
  int error = 0;
  socklen_t size = sizeof error;
  return ::getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &size) == 0 && error == 0;
}

// -1: nobody listens there yet.
int try_to_connect(const Launched& self, Clock::time_point deadline) {
  addrinfo hints{};
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const std::string port = fmt::format("{}", self.port);
  if (const int status = ::getaddrinfo(self.host.c_str(), port.c_str(), &hints, &found)) {
    fail(fmt::format("host {} of process 0: {}", self.host, ::gai_strerror(status)));
  }
  const int out = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  const bool is_there = connects(out, *found, deadline);
  ::freeaddrinfo(found);
  if (is_there && ::fcntl(out, F_SETFL, 0) == 0) return out;
  ::close(out);
  return -1;
}

Connection connect_to_first(const Launched& self, Clock::time_point deadline) {
  constexpr std::chrono::milliseconds kPause{20};
  for (;;) {
    if (const int socket = try_to_connect(self, deadline); socket >= 0) {
      Connection out(socket);
      send_at_once(socket);
      const std::int32_t rank = self.rank;
      if (out.write(std::as_bytes(std::span(&rank, 1)))) return out;
    }
    if (Clock::now() > deadline) {
      fail(fmt::format("process 0 does not listen on {}:{}", self.host, self.port));
    }
    std::this_thread::sleep_for(kPause);
  }
}

}  // namespace

Connection::~Connection() {
  if (socket_ >= 0) ::close(socket_);
}

Connection& Connection::operator=(Connection&& other) noexcept {
  std::swap(socket_, other.socket_);
  return *this;
}

bool Connection::write(std::span<const std::byte> bytes) const {
  while (!bytes.empty()) {
    const ssize_t n = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    bytes = bytes.subspan(static_cast<std::size_t>(n));
  }
  return true;
}

bool Connection::read(std::span<std::byte> bytes) const {
  while (!bytes.empty()) {
    const ssize_t n = ::recv(socket_, bytes.data(), bytes.size(), 0);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    bytes = bytes.subspan(static_cast<std::size_t>(n));
  }
  return true;
}

std::vector<Connection> connect_all(const Launched& self, double timeout_s) {
  const auto deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                           std::chrono::duration<double>(std::min(timeout_s, 1e6)));
  if (self.rank == 0) return accept_all(self, deadline);
  std::vector<Connection> out;
  out.push_back(connect_to_first(self, deadline));
  return out;
}

std::size_t wait_for_any(std::span<const Connection> connections, const std::vector<bool>& is_done,
                         std::chrono::milliseconds limit) {
  std::vector<pollfd> waiting;
  for (std::size_t i = 0; i < connections.size(); ++i) {
    waiting.push_back({is_done[i] ? -1 : connections[i].socket(), POLLIN, 0});
  }
  ::poll(waiting.data(), waiting.size(), static_cast<int>(limit.count()));
  const auto ready = std::ranges::find_if(waiting, [](const pollfd& p) { return p.revents != 0; });
  return static_cast<std::size_t>(ready - waiting.begin());
}

}  // namespace tracestep
