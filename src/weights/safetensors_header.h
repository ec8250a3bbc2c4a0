// The header of a safetensors file, with every check that the format requires: afterwards each
// entry's bytes are known to lie in the file, and to be as many as its type and shape need. Reading
// it takes about twice the memory of its text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weights/safetensors.h"

namespace tracestep {

struct SafetensorsHeader {
  std::vector<SafetensorsFile::Entry> entries;  // The entries, sorted by offset.
  std::map<std::string, std::string> metadata;
};

// The length of the JSON text that follows the first 8 bytes of the file. `start`: the file's first
// kForeignStart bytes, or all of it; from these a message can say what a file of another kind is.
// `name`: the file's name in messages. Throws Error{kInput}.
std::uint64_t safetensors_header_bytes(std::span<const std::byte> start, std::uint64_t file_bytes,
                                       const std::string& name);

// Parses the header. `text`: the JSON text; `data_bytes`: the number of bytes after it in the file.
// Throws Error{kInput}.
SafetensorsHeader parse_safetensors_header(std::string_view text, std::uint64_t data_bytes,
                                           const std::string& name);

}  // namespace tracestep
