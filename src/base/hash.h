// XXH3, a hash of 64 bits at memory speed: tells files that were damaged and texts that differ. Not
// a defence against forgery.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/input_file.h"

namespace tracestep {

// Of bytes that come in parts: the result depends on the bytes alone, not on where they were cut.
class Hash {
 public:
  Hash();
  ~Hash();
  Hash(const Hash&) = delete;
  Hash& operator=(const Hash&) = delete;

  void add(std::span<const std::byte> bytes);
  // Of what was added so far, as 16 hexadecimal digits.
  std::string text() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Of `bytes`, as 16 hexadecimal digits.
std::string hash_text(std::span<const std::byte> bytes);

// Of all bytes of a file, likewise.
std::string hash_file(const InputFile& file);

}  // namespace tracestep
