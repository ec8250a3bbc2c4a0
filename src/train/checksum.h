// The 64-bit checksum of checkpoints with the schema tracestep.checkpoint/1, to read them. What is
// written now has XXH3 (train/hash.h).
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace tracestep {

// Four independent lanes of 8 bytes each, so that it runs at memory speed: every word is mixed in
// by an exclusive or and an odd multiplication, both reversible, so a change in one word always
// changes the result.
inline std::uint64_t checksum_1(std::span<const std::byte> bytes) {
  constexpr std::uint64_t kOdd = 0x9e3779b97f4a7c15u;
  constexpr std::size_t kBlock = 4 * sizeof(std::uint64_t);
  const auto mix = [](std::uint64_t lane, std::uint64_t word) {
    return std::rotl((lane ^ word) * kOdd, 29);
  };
  std::uint64_t lanes[4] = {1, 2, 3, 4};
  const std::size_t size = bytes.size();
  while (!bytes.empty()) {
    std::uint64_t words[4] = {};
    const std::size_t count = bytes.size() < kBlock ? bytes.size() : kBlock;
    std::memcpy(words, bytes.data(), count);
    for (int i = 0; i < 4; ++i) lanes[i] = mix(lanes[i], words[i]);
    bytes = bytes.subspan(count);
  }
  std::uint64_t sum = size;
  for (std::uint64_t lane : lanes) sum = mix(sum, lane);
  return sum ^ (sum >> 32);
}

}  // namespace tracestep
