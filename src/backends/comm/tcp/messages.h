// Messages of processes that have met, as bytes: a header and what follows it. Nothing that comes
// is believed: lengths, kinds and statuses are checked, and no more is kept than fits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace tracestep {

enum class MessageKind : std::uint32_t { kData, kFailed, kEnd, kAlive };
struct MessageHeader {
  MessageKind kind = MessageKind::kData;
  std::int32_t status = 0;  // of a process that failed
  std::uint64_t bytes = 0;
};
struct Message {
  MessageHeader header;
  std::vector<std::byte> bytes = {};
};

inline constexpr std::uint64_t kMostTextBytes = 4096;  // of a process that says why it failed

// Messages of errors about what the other end is: "it sent 9 bytes where 8 were expected".
std::string sent_instead(std::uint64_t bytes, std::uint64_t expected);
inline constexpr const char* kForeign = "it is another program or version";

// Puts messages together from parts of any length.
class MessageReader {
 public:
  // `from` is for errors: "rank 1". Data of more than `most_bytes` is refused.
  MessageReader(std::string from, std::uint64_t most_bytes)
      : from_(std::move(from)), most_bytes_(most_bytes) {}

  // Room for the next bytes; never empty.
  std::span<std::byte> room();
  // Call it when the first `bytes` of room() are filled: the message, once it is whole.
  // Error{kFailed} for what no process of this program sends.
  std::optional<Message> take(std::size_t bytes);

 private:
  void check_header() const;

  std::string from_;
  std::uint64_t most_bytes_;
  std::size_t filled_ = 0;  // of the header and what follows it
  Message message_;
};

// The exit status to end with when a process says that it failed with `said`: a status of this
// program (docs/cli.md) other than 0, or 128 and a signal; 1 for all else.
int status_of_failure(std::int32_t said);

}  // namespace tracestep
