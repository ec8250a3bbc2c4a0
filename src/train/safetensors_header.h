// The header of a safetensors file, with every check that the format asks for: after it, each
// entry's bytes are known to lie in the file and to be as many as its type and shape need.
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "train/safetensors.h"

namespace tracestep {

struct SafetensorsHeader {
  std::vector<SafetensorsFile::Entry> entries;  // by offset
  std::map<std::string, std::string> metadata;
  std::size_t data_start = 0;
};

// `file` is the whole file, `name` what messages call it. Errors: kInput.
SafetensorsHeader parse_safetensors_header(std::span<const std::byte> file,
                                           const std::string& name);

}  // namespace tracestep
