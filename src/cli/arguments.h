// Finds the command and gives its options their values.
#pragma once

#include <span>
#include <string>

#include "cli/command.h"

namespace tracestep::cli {

// Finds the command and reads its options. Returns nullptr when help was asked for and has been
// printed. Errors: kUsage for unknown commands and flags (with the nearest known one), missing and
// malformed values.
const Command* parse_arguments(std::span<const Command> commands,
                               std::span<const std::string> arguments);

}  // namespace tracestep::cli
