// Prints the program's own documents: pages for docs/ and for man, and scripts that complete its
// command line.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "cli/command.h"
#include "lab/report/table.h"

namespace tracestep::cli {

// The page docs/ops.md, made from the records of all registered ops; and the same facts as a table.
std::string ops_page();
Table ops_table();

// The shells that have a completion script. The scripts and the manual page are made from the
// options that the parser reads.
inline constexpr std::string_view kShells[] = {"bash", "zsh", "fish"};

// The completion script of a shell, to be read by `source` or put into the folder where the shell
// looks for such scripts. `shell`: one of kShells.
std::string completion_script(std::string_view shell, std::span<const Command> commands);

// The manual page tracestep.1, in roff.
std::string manual_page(std::span<const Command> commands);

}  // namespace tracestep::cli
