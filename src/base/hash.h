// XXH3, a hash of 64 bits at memory speed: detects damaged files and different texts. It does not
// protect against forgery.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/input_file.h"

namespace tracestep {

// The hash of bytes that are added in parts; the result does not depend on where the parts are cut.
class Hash {
 public:
  Hash();
  ~Hash();
  Hash(const Hash&) = delete;
  Hash& operator=(const Hash&) = delete;

  void add(std::span<const std::byte> bytes);
  // Returns the hash of what was added so far, as 16 hexadecimal digits.
  std::string text() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Returns the hash of `bytes`, as 16 hexadecimal digits.
std::string hash_text(std::span<const std::byte> bytes);

// Returns the hash of all bytes of a file, as 16 hexadecimal digits.
std::string hash_file(const InputFile& file);

}  // namespace tracestep
