#include "base/hash.h"

#include <fmt/format.h>

// The hash is compiled from its header, so that the program needs no library of it at run time.
#define XXH_INLINE_ALL
#include <xxhash.h>

namespace tracestep {

struct Hash::State {
  XXH3_state_t xxh;
};

Hash::Hash() : state_(std::make_unique<State>()) {
  XXH3_64bits_reset(&state_->xxh);
}

Hash::~Hash() = default;

void Hash::add(std::span<const std::byte> bytes) {
  XXH3_64bits_update(&state_->xxh, bytes.data(), bytes.size());
}

std::string Hash::text() const {
  return fmt::format("{:016x}", XXH3_64bits_digest(&state_->xxh));
}

std::string hash_text(std::span<const std::byte> bytes) {
  return fmt::format("{:016x}", XXH3_64bits(bytes.data(), bytes.size()));
}

std::string hash_file(const InputFile& file) {
  Hash hash;
  file.for_each_part([&](std::span<const std::byte> part) { hash.add(part); });
  return hash.text();
}

}  // namespace tracestep
