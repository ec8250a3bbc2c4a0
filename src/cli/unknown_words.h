// Suggests what a person meant by a word of the command line that the command does not know.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "cli/command.h"

namespace tracestep::cli {

// A flag as other programs spell it (trainers, servers, launchers), and ours for the same. Of
// several rows with one name the first counts whose flag the command has.
struct FlagElsewhere {
  std::string_view theirs, ours;
};
std::span<const FlagElsewhere> flags_elsewhere();

// Throws Error{kUsage} that names what was probably meant: for a flag the commands that have it,
// ours for a name of other programs, or the nearest one; for any other word the flag that it
// belongs to.
[[noreturn]] void fail_unknown(const Command& command, const std::string& word);

}  // namespace tracestep::cli
