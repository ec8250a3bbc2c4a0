// Text to train on: files and folders, read in an order that does not depend on the machine.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace tracestep {

struct TextSource {
  std::string text;                          // all files, one after the other
  std::vector<std::filesystem::path> files;  // what was read, in order
  std::int64_t skipped_binary_count = 0;     // files in folders that contain a NUL byte
};

// Reads every path: a file as it is, a folder recursively and sorted by path. Inside a folder
// hidden names (".git"), symbolic links, binary files and everything that is not a regular file are
// skipped: links could form a cycle or read a text twice. A newline is added between files where
// one is missing. Errors: kInput when a path is missing, unreadable or a binary file, when nothing
// is left to read, or when the text is larger than 4 GiB.
TextSource read_text(std::span<const std::filesystem::path> paths);

}  // namespace tracestep
