// The header of a safetensors file, with every check that the format asks for: after it, each
// entry's bytes are known to lie in the file and to be as many as its type and shape need. Reading
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
  std::vector<SafetensorsFile::Entry> entries;  // by offset
  std::map<std::string, std::string> metadata;
};

// The length of the JSON text that follows the first 8 bytes of the file. `start`: its first
// kForeignStart bytes, or all of it; they tell what a file of another kind is. `name` is the file's
// name in messages. Errors: kInput.
std::uint64_t safetensors_header_bytes(std::span<const std::byte> start, std::uint64_t file_bytes,
                                       const std::string& name);

// `text` is that JSON text, `data_bytes` the number of bytes after it in the file. Errors: kInput.
SafetensorsHeader parse_safetensors_header(std::string_view text, std::uint64_t data_bytes,
                                           const std::string& name);

}  // namespace tracestep
