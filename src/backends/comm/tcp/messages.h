// Messages of connected processes as bytes: a header and its content. Received bytes are not
// trusted: lengths, kinds and statuses are checked, and no more is stored than a message may have.
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
  std::int32_t status = 0;  // The exit status of a process that failed.
  std::uint64_t bytes = 0;
};
struct Message {
  MessageHeader header;
  std::vector<std::byte> bytes = {};
};

// The longest text in which a process says why it failed.
inline constexpr std::uint64_t kMostTextBytes = 4096;

// Returns the text of an error about the other end: "it sent 9 bytes where 8 were expected".
std::string sent_instead(std::uint64_t bytes, std::uint64_t expected);
inline constexpr const char* kForeign = "it is another program or version";

// Assembles messages from received pieces of any length.
class MessageReader {
 public:
  // `from`: the sender in errors, "rank 1". A message with more than `most_bytes` of data is
  // refused.
  MessageReader(std::string from, std::uint64_t most_bytes)
      : from_(std::move(from)), most_bytes_(most_bytes) {}

  // Returns where the next received bytes are to be written; the span is never empty.
  std::span<std::byte> room();
  // Must be called when the first `bytes` of room() are filled. Returns the message once it is
  // complete. Throws Error{kFailed} for bytes that no process of this program sends.
  std::optional<Message> take(std::size_t bytes);

 private:
  void check_header() const;

  std::string from_;
  std::uint64_t most_bytes_;
  std::size_t filled_ = 0;  // How many bytes of the header, and of the content, have arrived.
  Message message_;
};

// Returns the exit status for another process's failure with status `said`: that status if this
// program has it (docs/cli.md) and it is not 0, or if it is 128 and a signal; otherwise 1.
int status_of_failure(std::int32_t said);

}  // namespace tracestep
