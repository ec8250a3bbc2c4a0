// What a file is that was given in the place of weights, by its first bytes: for messages.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

namespace tracestep {

struct ForeignFile {
  std::string_view what;  // "text": empty where it is none of those known
  std::string_view hint;  // how to make weights of it
};

inline constexpr std::size_t kForeignStart = 512;  // bytes that tell

// `start`: the first kForeignStart bytes of the file, or all of it.
ForeignFile foreign_file(std::span<const std::byte> start);

}  // namespace tracestep
