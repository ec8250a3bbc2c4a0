// The 64-bit checksum of checkpoints with the schema tracestep.checkpoint/1, which is only needed
// to read them. New checkpoints use XXH3 (base/hash.h).
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace tracestep {

// Mixes words of 8 bytes into four lanes in turn, each by an exclusive or and a multiplication by
// an odd constant.
class Checksum1 {
 public:
  // Adds the next bytes; every part but the last must be a multiple of 32 bytes.
  void add(std::span<const std::byte> bytes) {
    size_ += bytes.size();
    while (!bytes.empty()) {
      std::array<std::uint64_t, 4> words{};
      const std::size_t count = bytes.size() < sizeof words ? bytes.size() : sizeof words;
      std::memcpy(words.data(), bytes.data(), count);
      for (std::size_t i = 0; i < lanes_.size(); ++i) lanes_[i] = mix(lanes_[i], words[i]);
      bytes = bytes.subspan(count);
    }
  }
  std::uint64_t value() const {
    std::uint64_t sum = size_;
    for (std::uint64_t lane : lanes_) sum = mix(sum, lane);
    return sum ^ (sum >> 32);
  }

 private:
  static std::uint64_t mix(std::uint64_t lane, std::uint64_t word) {
    return std::rotl((lane ^ word) * 0x9e3779b97f4a7c15u, 29);
  }

  std::array<std::uint64_t, 4> lanes_{1, 2, 3, 4};
  std::uint64_t size_ = 0;
};

}  // namespace tracestep
