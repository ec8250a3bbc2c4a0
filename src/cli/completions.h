// Scripts by which a shell completes the command line, and the manual page: both made from the
// options that the parser reads.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "cli/command.h"

namespace tracestep::cli {

inline constexpr std::string_view kShells[] = {"bash", "zsh", "fish"};

// For `source`, or for the folder where the shell looks. `shell`: one of kShells.
std::string completion_script(std::string_view shell, std::span<const Command> commands);

// tracestep.1, in roff.
std::string manual_page(std::span<const Command> commands);

}  // namespace tracestep::cli
