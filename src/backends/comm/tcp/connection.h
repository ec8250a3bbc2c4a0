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
// The time `seconds` from now, and never more than some days from now.
Clock::time_point deadline_after(double seconds);

class Connection {
 public:
  Connection() = default;
  explicit Connection(int socket) : socket_(socket) {}
  ~Connection();
  Connection(Connection&& other) noexcept : socket_(other.socket_) { other.socket_ = -1; }
  Connection& operator=(Connection&& other) noexcept;

  int socket() const { return socket_; }
  // Writes all of the bytes; false when the other end is gone, or has not taken them in time.
  bool write(std::span<const std::byte> bytes, Clock::time_point deadline) const;
  // Reads all of the bytes; false when the other end is gone, or they have not come in time.
  bool read(std::span<std::byte> bytes, Clock::time_point deadline) const;
  // Reads what is there, without waiting: the number of bytes; nullopt when the other end is gone.
  std::optional<std::size_t> read_some(std::span<std::byte> bytes) const;

 private:
  int socket_ = -1;
};

// True if the name can mean this machine only: "localhost", or a loopback address in numbers. What
// another name means differs between machines.
bool is_loopback(const std::string& host);

// Listens on the address of `host` where this machine has it, else on all addresses.
// Error{kFailed}: the port is taken.
Connection listen_at(const std::string& host, int port);
// A connection that has come to a listening socket, if there is one (errno says why not), and where
// it comes from: "127.0.0.1:4242".
struct Accepted {
  Connection connection;
  std::string from;
};
Accepted accept_at(const Connection& listener);
// Not open if nobody listens yet or nobody answers in time. Error{kFailed}: the host is unknown.
Connection connect_to(const std::string& host, int port, Clock::time_point deadline);
// A port of the loopback address, on which a child can listen_at() and which the system gives to
// nobody else while `holder` lives.
struct ReservedPort {
  Connection holder;
  int port = 0;
};
ReservedPort reserve_port();

// Waits until some of the sockets have something to read, or are gone, and says which; none when
// that is so at `deadline`. Negative ones are left out.
std::vector<bool> wait_for_any(std::span<const int> sockets, Clock::time_point deadline);

}  // namespace tracestep
