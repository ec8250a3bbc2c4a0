// The program `tracestep`: runs a command and turns what it throws into a message and exit status.
#include <cstdio>
#include <new>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "backends/comm/launch/launched.h"
#include "base/env.h"
#include "base/error.h"
#include "base/log.h"
#include "base/option_names.h"
#include "base/signals.h"
#include "base/utf8.h"
#include "cli/arguments.h"
#include "cli/command.h"
#include "cli/devices.h"
#include "cli/processes.h"
#include "ops/functions.h"

namespace tracestep::cli {
namespace {

int run(std::span<const std::string> arguments) {
  ops::register_all();  // every command may build programs
  register_devices();
  const Command* command = parse_arguments(all_commands(), arguments);
  if (command == nullptr) return 0;
  env::check(env::variables());
  env::check(env::kLaunchVariables);
  (void)log_level();  // read once, here: the thread of signals must not read the environment
  try {
    join_processes(command->name, arguments);
    const NamedOptions flags([&](std::string_view name) {
      const std::string flag = command->options.flag_of(name);
      return flag.empty() ? fmt::format("option {}", name) : flag;
    });
    const int status = command->run(arguments);
    leave_processes();
    return status;
  } catch (const Error& error) {
    throw command->options.in_flags(error);
  }
}

// Prints the message and returns the exit status; of several processes, one that fails ends them
// all. Messages quote names and values from files, which may hold any bytes and be of any length.
int fail(std::string_view message, ErrorCode code) {
  const std::string line = "tracestep: " + message_line(message);
  if (processes() != nullptr) processes()->end_all(line, exit_code(code));
  std::fputs((line + "\n").c_str(), stderr);
  return exit_code(code);
}

}  // namespace

int run_program(int argc, char** argv) {
  try {
    take_signals();  // before any library could start a thread
    return run(std::vector<std::string>(argv + (argc > 0 ? 1 : 0), argv + argc));
  } catch (const Error& error) {
    return fail(error.what(), error.code());
  } catch (const std::bad_alloc&) {
    return fail(
        "[memory] the machine has no more memory for this; use a smaller size, batch or context",
        ErrorCode::kOutOfMemory);
  } catch (const std::system_error& error) {  // a refusal by the system is no mistake of ours
    return fail(fmt::format("[system] {}", error.what()), ErrorCode::kFailed);
  } catch (const std::exception& error) {
    return fail(std::string(error.what()) + "; this is a mistake in tracestep, please report it",
                ErrorCode::kFailed);
  }
}

}  // namespace tracestep::cli
