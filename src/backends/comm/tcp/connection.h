// TCP connections between the first process of a run and each of the others.
#pragma once

#include <chrono>
#include <cstddef>
#include <span>
#include <vector>

#include "base/launched.h"

namespace tracestep {

class Connection {
 public:
  Connection() = default;
  explicit Connection(int socket) : socket_(socket) {}
  ~Connection();
  Connection(Connection&& other) noexcept : socket_(other.socket_) { other.socket_ = -1; }
  Connection& operator=(Connection&& other) noexcept;

  int socket() const { return socket_; }
  // All of the bytes; false when the other end is gone.
  bool write(std::span<const std::byte> bytes) const;
  bool read(std::span<std::byte> bytes) const;

 private:
  int socket_ = -1;
};

// Process 0: a connection to each of the others, in their order; another one: to process 0.
// Error{kFailed}: the port is taken, the host is unknown, or not all came within `timeout_s`.
std::vector<Connection> connect_all(const Launched& self, double timeout_s);
// The index of a connection that has something to read, or whose other end is gone; those that are
// done are left out. connections.size() when there was none within `limit`.
std::size_t wait_for_any(std::span<const Connection> connections, const std::vector<bool>& is_done,
                         std::chrono::milliseconds limit);

}  // namespace tracestep
