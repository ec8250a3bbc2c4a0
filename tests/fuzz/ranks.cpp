// Messages of ranks when they meet and afterwards: nobody is taken for a rank without its proof,
// and no message is longer than is allowed, in whatever parts its bytes come.
#include <algorithm>
#include <cstring>

#include "backends/comm/tcp/handshake.h"
#include "backends/comm/tcp/messages.h"
#include "fuzz/fuzz_target.h"

using namespace tracestep;
using namespace tracestep::fuzzing;

namespace {

constexpr int kRanks = 3;
constexpr std::uint64_t kMostBytes = 4096;
constexpr Secret kSecret{};
const Greeting kGreeting;

template <class T>
std::optional<T> first_of(std::span<const std::byte> bytes) {
  T out;
  if (bytes.size() < sizeof out) return std::nullopt;
  std::memcpy(&out, bytes.data(), sizeof out);
  return out;
}

bool is_member(const Hello& hello) {
  return hello.count == kRanks && hello.rank >= 1 && hello.rank < hello.count;
}

void meet(std::span<const std::byte> bytes) {
  const Heard heard = hear(bytes, kGreeting, kSecret, kRanks);
  require(!heard.rank || heard.problem.empty());
  if (const auto greeting = first_of<Greeting>(bytes)) {
    require(answer_to(*greeting, kSecret, 1, kRanks, {}).has_value() ==
            (greeting->magic == kMagic));
  }
  const auto hello = first_of<Hello>(bytes);
  if (!hello) return;
  // A greeting of the same rank with a right proof.
  const Hello right = answer_to(kGreeting, kSecret, static_cast<int>(hello->rank),
                                static_cast<int>(hello->count), hello->nonce)
                          .value();
  require(hear(std::as_bytes(std::span(&right, 1)), kGreeting, kSecret, kRanks).rank.has_value() ==
          is_member(*hello));
  require(heard.rank.has_value() ==
          (std::memcmp(&right, &*hello, sizeof right) == 0 && is_member(right)));
  require(!is_same(right.proof, proof_of_first(kGreeting, right, kSecret)));
}

void look(const Message& message) {
  require(message.bytes.size() == message.header.bytes && message.bytes.size() <= kMostBytes);
  const int status = status_of_failure(message.header.status);
  require(status > 0 && status < 256);
}

void read(std::span<const std::byte> bytes, std::size_t part) {
  MessageReader reader("rank 1", kMostBytes);
  while (!bytes.empty()) {
    const std::span<std::byte> room = reader.room();
    require(!room.empty() && room.size() <= std::max<std::size_t>(kMostBytes, kMostTextBytes));
    const std::size_t n = std::min({part, room.size(), bytes.size()});
    std::ranges::copy(bytes.first(n), room.begin());
    if (const auto message = reader.take(n)) look(*message);
    bytes = bytes.subspan(n);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const auto bytes = std::as_bytes(std::span(data, size)).subspan(1);
  meet(bytes);
  try {
    read(bytes, std::max<std::size_t>(1, data[0]));
  } catch (const Error& e) {
    require(e.code() == ErrorCode::kFailed && is_utf8(message_line(e.what())));
  }
  return 0;
}
