// The words of a command line by the options they belong to, as the parser takes them: the value of
// an option may look like a flag.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace tracestep::cli {

using Words = std::vector<std::string>;  // of a command line, the name of the command first

// Words without these options and their values.
Words without_flags(std::span<const std::string> words, std::span<const std::string> dropped);

bool has_flag(std::span<const std::string> words, const std::string& flag);

// Where the value of an option of one value stands: in a word of its own or behind "--flag=".
struct ValuePlace {
  std::size_t word = 0, begin = 0;
};
std::optional<ValuePlace> value_place(std::span<const std::string> words, const std::string& flag);
// The option and its value; empty where it is not given.
Words flag_with_value(std::span<const std::string> words, const std::string& flag);

}  // namespace tracestep::cli
