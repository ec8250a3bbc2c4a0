#include "backends/comm/tcp/connection.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "backends/comm/launch/launched.h"
#include "base/error.h"

namespace tracestep {
namespace {

constexpr in_addr kAllAddresses{INADDR_ANY};

[[noreturn]] void fail(const std::string& message, const std::string& hint = {}) {
  throw Error(ErrorCode::kFailed, "processes", message, hint);
}

bool is_loopback(const in_addr& address) {
  return ntohl(address.s_addr) >> IN_CLASSA_NSHIFT == IN_LOOPBACKNET;
}

// Returns the first address of a host; nullopt and `problem` if the host is unknown.
std::optional<in_addr> resolve(const std::string& host, std::string& problem) {
  addrinfo hints{};
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int status = ::getaddrinfo(host.c_str(), nullptr, &hints, &found)) {
    problem = ::gai_strerror(status);
    return std::nullopt;
  }
  sockaddr_in first{};
  std::memcpy(&first, found->ai_addr, sizeof first);
  ::freeaddrinfo(found);
  return first.sin_addr;
}

sockaddr_in address_of(const in_addr& host, int port) {
  sockaddr_in out{};
  out.sin_family = AF_INET;
  out.sin_port = htons(static_cast<std::uint16_t>(port));
  out.sin_addr = host;
  return out;
}

Connection new_socket() {
  return Connection(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

bool binds(const Connection& to, const in_addr& host, int port) {
  const int on = 1;
  ::setsockopt(to.socket(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  const sockaddr_in address = address_of(host, port);
  return ::bind(to.socket(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
}

// Turns off TCP's delay of small messages, as the other end waits for each of them.
void send_at_once(const Connection& connection) {
  const int on = 1;
  ::setsockopt(connection.socket(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

// Returns the milliseconds until the deadline: at least 0, and no more than poll() takes.
int milliseconds_until(Clock::time_point deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
  return static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, 1 << 30));
}

// Waits for `events` on the socket; false if none of them came until the deadline.
bool wait_for(int socket, short events, Clock::time_point deadline) {
  pollfd waiting{socket, events, 0};
  return ::poll(&waiting, 1, milliseconds_until(deadline)) > 0;
}

// Connects the socket; false if nobody listens at `to`, or the host does not answer by `deadline`.
bool connects(const Connection& from, const sockaddr_in& to, Clock::time_point deadline) {
  const int socket = from.socket();
  if (::connect(socket, reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0) return true;
  if (errno != EINPROGRESS || !wait_for(socket, POLLOUT, deadline)) return false;
  int error = 0;
  socklen_t size = sizeof error;
  return ::getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &size) == 0 && error == 0;
}

}  // namespace

Clock::time_point deadline_after(double seconds) {
  const std::chrono::duration<double> limited(std::min(seconds, 1e6));
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(limited);
}

Connection::~Connection() {
  if (socket_ >= 0) ::close(socket_);
}

Connection& Connection::operator=(Connection&& other) noexcept {
  std::swap(socket_, other.socket_);
  return *this;
}

bool Connection::write(std::span<const std::byte> bytes, Clock::time_point deadline) const {
  while (!bytes.empty()) {
    const ssize_t n = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n >= 0) {
      bytes = bytes.subspan(static_cast<std::size_t>(n));
    } else if (errno != EINTR && (errno != EAGAIN || !wait_for(socket_, POLLOUT, deadline))) {
      return false;
    }
  }
  return true;
}

bool Connection::read(std::span<std::byte> bytes, Clock::time_point deadline) const {
  while (!bytes.empty()) {
    const auto n = read_some(bytes);
    if (!n || (*n == 0 && !wait_for(socket_, POLLIN, deadline))) return false;
    bytes = bytes.subspan(*n);
  }
  return true;
}

std::optional<std::size_t> Connection::read_some(std::span<std::byte> bytes) const {
  const ssize_t n = ::recv(socket_, bytes.data(), bytes.size(), MSG_DONTWAIT);
  if (n > 0) return static_cast<std::size_t>(n);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return 0;
  return std::nullopt;
}

bool is_loopback(const std::string& host) {
  in_addr address{};
  return host == "localhost" ||
         (::inet_pton(AF_INET, host.c_str(), &address) == 1 && is_loopback(address));
}

Connection listen_at(const std::string& host, int port) {
  std::string problem;
  const auto address = resolve(host, problem);
  // Asked for its own name, a machine may get a loopback address where others get another address
  // (Debian's 127.0.1.1).
  const bool is_of_host = address && (!is_loopback(*address) || is_loopback(host));
  Connection out = new_socket();
  bool is_bound = is_of_host && binds(out, *address, port);
  if (!is_bound && (!is_of_host || errno == EADDRNOTAVAIL)) {
    is_bound = binds(out, kAllAddresses, port);
  }
  if (!is_bound || ::listen(out.socket(), SOMAXCONN) != 0) {
    fail(fmt::format("port {} of {} cannot be used: {}", port, host, std::strerror(errno)),
         fmt::format("choose another one by {}", env::kMasterPort.name));
  }
  return out;
}

Accepted accept_at(const Connection& listener) {
  sockaddr_in from{};
  socklen_t size = sizeof from;
  Connection out(::accept4(listener.socket(), reinterpret_cast<sockaddr*>(&from), &size,
                           SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (out.socket() < 0) return {};
  send_at_once(out);
  char text[INET_ADDRSTRLEN] = "";
  ::inet_ntop(AF_INET, &from.sin_addr, text, sizeof text);
  return {std::move(out), fmt::format("{}:{}", text, ntohs(from.sin_port))};
}

Connection connect_to(const std::string& host, int port, Clock::time_point deadline) {
  std::string problem;
  const auto address = resolve(host, problem);
  if (!address) fail(fmt::format("host {} of process 0: {}", host, problem));
  Connection out = new_socket();
  if (!connects(out, address_of(*address, port), deadline)) return {};
  send_at_once(out);
  return out;
}

ReservedPort reserve_port() {
  ReservedPort out{new_socket()};
  sockaddr_in address{};
  socklen_t size = sizeof address;
  if (!binds(out.holder, {htonl(INADDR_LOOPBACK)}, 0) ||
      ::getsockname(out.holder.socket(), reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    fail(fmt::format("there is no free port: {}", std::strerror(errno)));
  }
  out.port = ntohs(address.sin_port);
  return out;
}

std::vector<bool> wait_for_any(std::span<const int> sockets, Clock::time_point deadline) {
  std::vector<pollfd> waiting;
  for (const int socket : sockets) waiting.push_back({socket, POLLIN, 0});
  ::poll(waiting.data(), waiting.size(), milliseconds_until(deadline));
  std::vector<bool> out;
  for (const pollfd& one : waiting) out.push_back(one.revents != 0);
  return out;
}

}  // namespace tracestep
