// The syntax of a command line: flags with values, and words without a flag. The word after a flag
// that takes a value is always that value, even if it looks like a flag.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "cli/option_set.h"

namespace tracestep::cli {

using Words = std::vector<std::string>;

struct CommandLine {
  // A flag with its values, or one word without a flag.
  struct Part {
    std::string flag;
    Words values = {};
  };
  std::vector<Part> parts = {};
  Words behind = {};  // The words after "--", which are never flags.
};

// Reads the words after the name of the command: "--flag=value", "--flag value" and "-n4". Words
// that begin with "-" but are no flags of `options` become parts without a flag. Throws
// Error{kUsage} naming the flag if a value is missing or empty, or if a switch has one.
CommandLine read_command_line(const OptionSet& options, std::span<const std::string> words);

// Returns words that read_command_line() reads as this part.
Words words_of_part(const CommandLine::Part& part);

bool asks_for_help(const std::string& word);  // "--help" or "-h"

}  // namespace tracestep::cli
