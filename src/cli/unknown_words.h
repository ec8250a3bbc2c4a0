// Suggests what a person meant by a word of the command line that the command does not know.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "cli/command.h"

namespace tracestep::cli {

// A flag of other programs (trainers, servers, launchers) and ours with the same meaning. Of
// several rows with one name, the first whose flag the command has is used.
struct FlagElsewhere {
  std::string_view theirs, ours;
};
std::span<const FlagElsewhere> flags_elsewhere();

// Throws Error{kUsage} that names what was probably meant. For a flag: the commands that have it,
// our name for a flag of another program, or the nearest flag. For another word: the flag that it
// belongs to.
[[noreturn]] void fail_unknown(const Command& command, const std::string& word);

}  // namespace tracestep::cli
