// Reads text to train on from files and folders, in an order that does not depend on the machine.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace tracestep {

struct TextSource {
  std::string text;                          // The contents of all files, one after the other.
  std::vector<std::filesystem::path> files;  // the files that were read, in order
  // Where each file begins and ends in the text.
  std::vector<std::pair<std::size_t, std::size_t>> bounds = {};
  // Paths inside folders that were not read, by the reason, such as "binary".
  std::map<std::string, std::vector<std::filesystem::path>> left_out;
  // Files that were read but contain something that a user may not expect, by what it is.
  std::map<std::string, std::vector<std::filesystem::path>> remarks;
};

// Reads every path: a file as it is, a folder recursively and sorted by path. Inside a folder
// hidden names (".git"), symbolic links, empty and binary files and everything that is not a
// regular file are left out: links could form a cycle or read a text twice. A newline is added
// between files where one is missing. UTF-16 with a byte-order mark becomes UTF-8, and a mark is no
// part of the text; otherwise bytes stay as they are, line ends and what is not UTF-8 included.
// Errors: kInput when a path is missing, unreadable or a binary file, when nothing is left to read,
// or when the text is larger than 4 GiB.
TextSource read_text(std::span<const std::filesystem::path> paths);

// A summary for people: "12 files, 3.10 MiB; left out: a.png, b.png and 3 more (binary), .git
// (hidden); CRLF line ends, kept: c.txt".
std::string words_of(const TextSource& source);

// Converts bytes to a text as read_text() does those of a file. `name`: for error messages.
std::string text_of_bytes(std::string bytes, const std::string& name);

}  // namespace tracestep
