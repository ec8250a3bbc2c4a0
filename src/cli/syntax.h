// The syntax of a command line: flags with their values, and words that belong to none. A value is
// taken as it is, whatever it holds, and never is the flag that follows.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "cli/option_set.h"

namespace tracestep::cli {

using Words = std::vector<std::string>;

struct CommandLine {
  // A flag with its values, or, without a flag, one word that belongs to none.
  struct Part {
    std::string flag;
    Words values = {};
  };
  std::vector<Part> parts = {};
  Words behind = {};  // the words after "--", which are no flags whatever they look like
};

// `words`: what follows the name of the command. "--flag=value", "--flag value" and "-n4" are
// read; words that begin with "-" and are no flags of `options` are parts without a flag. Errors:
// kUsage naming the flag, for a value that is missing or empty, and one of a switch.
CommandLine read_command_line(const OptionSet& options, std::span<const std::string> words);

// Words that are read as this part again.
Words words_of_part(const CommandLine::Part& part);

bool asks_for_help(const std::string& word);  // "--help" or "-h"

}  // namespace tracestep::cli
