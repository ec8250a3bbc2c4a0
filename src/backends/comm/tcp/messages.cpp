#include "backends/comm/tcp/messages.h"

#include <csignal>
#include <utility>

#include "base/error.h"

namespace tracestep {

std::string sent_instead(std::uint64_t bytes, std::uint64_t expected) {
  return fmt::format("it sent {} bytes where {} were expected", bytes, expected);
}

std::span<std::byte> MessageReader::room() {
  constexpr std::size_t kHeaderBytes = sizeof(MessageHeader);
  if (filled_ < kHeaderBytes) {
    return std::as_writable_bytes(std::span(&message_.header, 1)).subspan(filled_);
  }
  return std::span(message_.bytes).subspan(filled_ - kHeaderBytes);
}

std::optional<Message> MessageReader::take(std::size_t bytes) {
  filled_ += bytes;
  if (filled_ < sizeof(MessageHeader)) return std::nullopt;
  if (filled_ == sizeof(MessageHeader)) {
    check_header();
    message_.bytes.resize(message_.header.bytes);
  }
  if (!room().empty()) return std::nullopt;
  filled_ = 0;
  return std::exchange(message_, {});
}

void MessageReader::check_header() const {
  std::uint64_t most = 0;
  switch (message_.header.kind) {
    case MessageKind::kData: most = most_bytes_; break;
    case MessageKind::kFailed: most = kMostTextBytes; break;
    case MessageKind::kEnd:
    case MessageKind::kAlive: break;
    default:
      throw Error(ErrorCode::kFailed, from_,
                  fmt::format("it sent a message of kind {}",
                              static_cast<std::uint32_t>(message_.header.kind)),
                  kForeign);
  }
  if (message_.header.bytes > most) {
    throw Error(ErrorCode::kFailed, from_, sent_instead(message_.header.bytes, most), kForeign);
  }
}

int status_of_failure(std::int32_t said) {
  const bool is_ours = said >= 1 && said <= exit_code(ErrorCode::kNotFinite);
  const bool is_signal = said > 128 && said <= 128 + SIGRTMAX;
  return is_ours || is_signal ? said : exit_code(ErrorCode::kFailed);
}

}  // namespace tracestep
