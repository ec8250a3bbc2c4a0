// Prints the program's own documents: pages for docs/ and for man, and scripts that complete its
// command line.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "cli/command.h"
#include "lab/report/table.h"

namespace tracestep::cli {

// docs/ops.md, from the records of all registered ops; and what they say as a table.
std::string ops_page();
Table ops_table();

// Scripts by which a shell completes the command line, and the manual page: both made from the
// options that the parser reads.
inline constexpr std::string_view kShells[] = {"bash", "zsh", "fish"};

// For `source`, or for the folder where the shell looks. `shell`: one of kShells.
std::string completion_script(std::string_view shell, std::span<const Command> commands);

// tracestep.1, in roff.
std::string manual_page(std::span<const Command> commands);

}  // namespace tracestep::cli
