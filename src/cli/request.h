// A command line as data: the options by their flags, as the parser reads them. Options can be
// changed by flag, and the result is printed as words again.
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
  // Reads a command line. `words`: the command's name first. Throws as read_command_line().
  explicit Request(std::span<const std::string> words);

  const std::string& command() const { return command_; }
  bool has(std::string_view flag) const { return find(flag) != nullptr; }
  // The value of an option that has one; nullopt: it is not given.
  std::optional<std::string> value(std::string_view flag) const;

  void drop(std::string_view flag);
  void add(std::string flag) { line_.parts.push_back({std::move(flag)}); }  // a switch
  // Sets the value of an option in its place; an option that was not given is added at the end.
  void set(std::string_view flag, std::string value);

  Words words() const;
  // The options sorted by their flags, so that two spellings of one request give the same words.
  Words sorted_words() const;

 private:
  const CommandLine::Part* find(std::string_view flag) const;

  std::string command_;
  CommandLine line_;
};

}  // namespace tracestep::cli
