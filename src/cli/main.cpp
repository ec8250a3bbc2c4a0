// The program `tracestep`: runs a command and turns what it throws into a message and exit status.
#include <cstdio>
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/signals.h"
#include "base/utf8.h"
#include "cli/arguments.h"
#include "cli/command.h"
#include "cli/devices.h"
#include "cli/flag_names.h"
#include "ops/functions.h"

namespace tracestep::cli {
namespace {

// Messages quote names and values from files, which may hold any bytes and be of any length.
void say(std::string_view message) {
  std::fputs(("tracestep: " + message_line(message) + "\n").c_str(), stderr);
}

// An error of the lower layers in the words of the command line.
Error in_flags(const OptionSet& options, const Error& error) {
  const bool is_about_options = error.code() == ErrorCode::kUsage ||
                                error.code() == ErrorCode::kInput ||
                                error.code() == ErrorCode::kOutput;
  const std::string flag = is_about_options ? flag_of(options, error.where()) : std::string();
  return {error.code(), flag.empty() ? error.where() : flag, with_flags(options, error.message()),
          with_flags(options, error.hint())};
}

int run(std::span<const std::string> arguments) {
  ops::register_all();  // every command may build programs
  register_devices();
  const Command* command = parse_arguments(all_commands(), arguments);
  if (command == nullptr) return 0;
  try {
    return command->run(arguments);
  } catch (const Error& error) {
    throw in_flags(command->options, error);
  }
}

}  // namespace
}  // namespace tracestep::cli

int main(int argc, char** argv) {
  using namespace tracestep;
  using namespace tracestep::cli;
  try {
    take_signals();  // before any library could start a thread
    return run(std::vector<std::string>(argv + (argc > 0 ? 1 : 0), argv + argc));
  } catch (const Error& error) {
    say(error.what());
    return exit_code(error.code());
  } catch (const std::bad_alloc&) {
    say("[memory] the machine has no more memory for this; use a smaller size, batch or context");
    return exit_code(ErrorCode::kOutOfMemory);
  } catch (const std::exception& error) {
    say(std::string(error.what()) + "; this is a mistake in tracestep, please report it");
    return exit_code(ErrorCode::kFailed);
  }
}
