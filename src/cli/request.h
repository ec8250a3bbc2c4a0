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

}  // namespace tracestep::cli
