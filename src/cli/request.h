// A command line as data: the options by their flags, as the parser takes them. It is changed by
// flag, and printed as words again.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/syntax.h"

namespace tracestep::cli {

class Request {
 public:
  // `words`: the name of the command first. Errors: as read_command_line().
  explicit Request(std::span<const std::string> words);

  const std::string& command() const { return command_; }
  bool has(std::string_view flag) const { return find(flag) != nullptr; }
  // The value of an option that has one; nullopt: it is not given.
  std::optional<std::string> value(std::string_view flag) const;

  void drop(std::string_view flag);
  void add(std::string flag) { line_.parts.push_back({std::move(flag)}); }  // a switch
  // The new value takes the old one's place, or the end.
  void set(std::string_view flag, std::string value);

  Words words() const;
  // The options in the order of their flags: two spellings of one request have one.
  Words sorted_words() const;

 private:
  const CommandLine::Part* find(std::string_view flag) const;

  std::string command_;
  CommandLine line_;
};

// Divides a request into one for each combination of the values that it lists for these flags, the
// first of which varies slowest. Flags that are not there, or have one value, divide nothing.
struct Division {
  std::vector<std::string> flags;  // the flags that divide
  std::vector<Request> parts;

  // The values of these flags in a part: "tiny 64 step"; empty where nothing is divided.
  std::string label(std::size_t part) const;
};
Division divide(const Request& request, std::span<const std::string> flags);

// The column of a result that shows what a flag varies.
std::string column_of_flag(const std::string& flag);

}  // namespace tracestep::cli
