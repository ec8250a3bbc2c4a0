// The processes that a launcher started for one run, of which this process is one: what they
// exchange besides tensors. All of them make the same calls in the same order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tracestep {

class Processes {
 public:
  virtual ~Processes() = default;
  virtual int rank() const = 0;
  virtual int count() const = 0;
  virtual int local_rank() const = 0;  // The number of this process among those on its host.
  // Returns what each process passed as `own`, by rank. Throws Error{kFailed} if one of them does
  // not come in time.
  virtual std::vector<std::uint64_t> exchange(std::uint64_t own) = 0;
  // Sends at most 4096 bytes of the first process to all. Throws as exchange().
  virtual void broadcast(std::span<std::byte> bytes) = 0;
  // Waits, without a time limit, until the first process calls this too, after work that it does
  // alone. If a process is lost meanwhile, the others are ended as usual.
  virtual void wait_for_first() = 0;
  // Ends all processes with `status`, within seconds. One line is written to stderr, whichever and
  // however many of them call this.
  [[noreturn]] virtual void end_all(const std::string& line, int status) = 0;
};

// Throws Error{kFailed} that names a process whose `value` is another than the first one's.
void check_same(Processes& processes, std::string_view what, std::uint64_t value);

// True if `own` is true in any process, or in all; every process must call this. If `processes` is
// nullptr, this process is alone and `own` is returned.
bool holds_in_any(Processes* processes, bool own);
bool holds_in_all(Processes* processes, bool own);

}  // namespace tracestep
