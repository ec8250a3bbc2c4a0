// TCP connections of IPv4, and waits for them that end in time.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace tracestep {

using Clock = std::chrono::steady_clock;
// Returns the time that is `seconds` from now, at most 1e6 s (11 days).
Clock::time_point deadline_after(double seconds);

class Connection {
 public:
  Connection() = default;
  explicit Connection(int socket) : socket_(socket) {}
  ~Connection();
  Connection(Connection&& other) noexcept : socket_(other.socket_) { other.socket_ = -1; }
  Connection& operator=(Connection&& other) noexcept;

  int socket() const { return socket_; }
  // Writes all of the bytes; returns false if the other end is gone or has not taken them in time.
  bool write(std::span<const std::byte> bytes, Clock::time_point deadline) const;
  // Reads all of the bytes; returns false if the other end is gone or they have not come in time.
  bool read(std::span<std::byte> bytes, Clock::time_point deadline) const;
  // Reads the bytes that have arrived, without waiting, and returns their number; nullopt if the
  // other end is gone.
  std::optional<std::size_t> read_some(std::span<std::byte> bytes) const;

 private:
  int socket_ = -1;
};

// True if `host` can only mean this machine: "localhost", or a numeric loopback address. What other
// names mean may depend on the machine that asks.
bool is_loopback(const std::string& host);

// Listens on the address of `host` if this machine has it, else on all addresses. Throws
// Error{kFailed} if the port is taken.
Connection listen_at(const std::string& host, int port);
// A connection that arrived at a listening socket, if there is one (errno says why not), and its
// origin: "127.0.0.1:4242".
struct Accepted {
  Connection connection;
  std::string from;
};
Accepted accept_at(const Connection& listener);
// Connects to a host; the connection is not open if nobody listens yet or nobody answers in time.
// Throws Error{kFailed} if the host is unknown.
Connection connect_to(const std::string& host, int port, Clock::time_point deadline);
// A port of the loopback address, on which a child process can listen_at(). The system gives it to
// nobody else while `holder` lives.
struct ReservedPort {
  Connection holder;
  int port = 0;
};
ReservedPort reserve_port();

// Waits until at least one of the sockets has something to read or is gone, and returns which ones;
// none if nothing happens until `deadline`. Negative sockets are ignored.
std::vector<bool> wait_for_any(std::span<const int> sockets, Clock::time_point deadline);

}  // namespace tracestep
