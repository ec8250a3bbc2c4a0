// A command of the program: its help texts, its options and the function that runs it.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "cli/job_plan.h"
#include "cli/option_set.h"

namespace tracestep::cli {

class Cells;     // cli/cells.h
struct JobRows;  // likewise

struct Command {
  std::string name = {};
  // Its page says (lab/pages/commands/NAME.md), and all_commands() reads:
  std::size_t section = 0;   // under which of the help's headings it stands
  std::string summary = {};  // one line: the question it answers
  std::string details = {};  // a few sentences for `--help`
  std::vector<std::pair<std::string, std::string>> examples = {};  // arguments, what they show

  OptionSet options = {};  // they set the variables that `run` reads
  // `arguments`: the whole command line, to be recorded in results. Returns the exit status.
  std::function<int(std::span<const std::string> arguments)> run = {};
  // Set by a command that measures cells in the place of `run`, which add_cells() (cli/cells.h)
  // makes, along with the function that makes the result of what jobs have measured.
  std::function<int(Cells& cells)> run_cells = {};
  std::function<int(std::span<const std::string> arguments, std::vector<JobRows> jobs)> gather = {};
  // The cells that it will measure, with its options as they were read, and what each needs. For a
  // command with `run_cells` add_cells() makes it.
  std::function<std::vector<PlannedCell>(std::span<const std::string> arguments)> plan = {};
  // The fields by whose values cells become jobs (cli/sbatch.cpp): what is compared with each other
  // is measured by one. None: every cell is a job.
  std::vector<std::string_view> job_fields = {};
};

// Lets `run` run the command, and `plan` plan all that it does, with the options that were read
// into `options`.
template <class Options, class Run>
void runs_with(Command& command, const std::shared_ptr<Options>& options, Run run) {
  command.run = [options, run](std::span<const std::string> arguments) {
    return run(*options, arguments);
  };
}
template <class Options, class Run>
void runs_with(Command& command, const std::shared_ptr<Options>& options, Run run,
               JobPlan (*plan)(const Options& options)) {
  runs_with(command, options, run);
  command.plan = [options, plan](std::span<const std::string>) {
    return std::vector{PlannedCell{.needs = plan(*options)}};
  };
}
// As above, for a command that measures cells.
template <class Options, class Run>
void measures_with(Command& command, const std::shared_ptr<Options>& options, Run run) {
  command.run_cells = [options, run](Cells& cells) { return run(*options, cells); };
}

// All of them, in the order of the help text: by section, then by name. Each is the function
// NAME_command() of a file command_NAME.cpp, found by its name.
const std::vector<Command>& all_commands();

// The program `tracestep` as a function, also for programs of one's own that add ops or devices:
// runs the command of this command line, with all ops and devices of this build and those that were
// registered before. Turns what it throws into a message. Returns the exit status. Call it before
// any thread is started, as it takes the signals.
int run_program(int argc, char** argv);

// The headings of the help text, in its order.
std::span<const std::string_view> help_sections();
// A line for each command; the help of the program and of one command, at most 100 columns wide.
std::string command_list(std::span<const Command> commands);
std::string help_text(std::span<const Command> commands);
std::string help_text(const Command& command);
// The text for `-h`: the question, examples, the ten commonest options in a line each.
std::string short_help(const Command& command);
// The topic of `help architecture`, the options that the help of a command has one line for.
inline constexpr const char* kArchitectureTopic = "architecture";
std::string architecture_help(std::span<const Command> commands);
// Parts of these texts: what stands before the options, and a line of one (whose doc names flags).
std::string opening_of(const Command& command);
std::string option_line(const Option& option);
// The text of docs/cli.md, and the same commands and options as data.
std::string cli_reference(std::span<const Command> commands);
Json cli_listing(std::span<const Command> commands);

}  // namespace tracestep::cli
