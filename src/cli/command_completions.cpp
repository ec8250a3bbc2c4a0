// tracestep completions: a script by which a shell completes commands, flags and their values.
#include <memory>

#include "base/suggest.h"
#include "cli/command.h"
#include "cli/output.h"
#include "cli/printed_pages.h"

namespace tracestep::cli {

Command completions_command() {
  const auto shell = std::make_shared<std::string>();
  Command command{.name = "completions"};
  command.options.positional("SHELL", *shell, "bash, zsh or fish");
  command.run = [shell](std::span<const std::string>) {
    check_choice("SHELL", *shell, std::vector<std::string>(std::begin(kShells), std::end(kShells)));
    write_text(completion_script(*shell, all_commands()), {});
    return 0;
  };
  return command;
}

}  // namespace tracestep::cli
