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
  // Filled in by all_commands() from the command's page (lab/pages/commands/NAME.md): the index of
  // the help's heading that lists the command.
  std::size_t section = 0;
  std::string summary = {};  // One line: the question that the command answers.
  std::string details = {};  // a few sentences for `--help`
  std::vector<std::pair<std::string, std::string>> examples = {};  // Arguments, and what they show.

  OptionSet options = {};  // The options, which set the variables that `run` reads.
  // Runs the command. `arguments`: the whole command line, for results. Returns the exit status.
  std::function<int(std::span<const std::string> arguments)> run = {};
  // Set instead of `run` by a command that measures cells; add_cells() (cli/cells.h) makes `run`
  // from it, and the function that joins results of jobs.
  std::function<int(Cells& cells)> run_cells = {};
  std::function<int(std::span<const std::string> arguments, std::vector<JobRows> jobs)> gather = {};
  // Lists the cells that the command will measure with the options as read, and what each needs.
  // add_cells() makes it for a command with `run_cells`.
  std::function<std::vector<PlannedCell>(std::span<const std::string> arguments)> plan = {};
  // The fields by which cells are divided into jobs (cli/sbatch.cpp): cells that are compared with
  // each other belong to one job. Empty: every cell is a job.
  std::vector<std::string_view> job_fields = {};
};

// Makes `run` run the command and, in the second overload, `plan` list what it needs, both with the
// options that were read into `options`.
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
// Makes `run_cells` call `run` with the options that were read, for a command that measures cells.
template <class Options, class Run>
void measures_with(Command& command, const std::shared_ptr<Options>& options, Run run) {
  command.run_cells = [options, run](Cells& cells) { return run(*options, cells); };
}

// Returns all commands in the order of the help text: by section, then by name. Each is the
// function NAME_command() of a file command_NAME.cpp, found by its name.
const std::vector<Command>& all_commands();

// The program `tracestep` as a function, also for programs that add their own ops or devices: runs
// the command of this command line with all ops and devices that are registered. Prints exceptions
// as messages. Returns the exit status. Call it before any thread is started, because it handles
// signals.
int run_program(int argc, char** argv);

// The headings of the help text, in its order.
std::span<const std::string_view> help_sections();
// A line for each command; the help of the program and of one command, at most 100 columns wide.
std::string command_list(std::span<const Command> commands);
std::string help_text(std::span<const Command> commands);
std::string help_text(const Command& command);
// The text for `-h`: the question, examples, the ten commonest options in a line each.
std::string short_help(const Command& command);
// The topic of `tracestep help architecture`, and its text: the options of the architecture, which
// a command's help sums up in one line.
inline constexpr const char* kArchitectureTopic = "architecture";
std::string architecture_help(std::span<const Command> commands);
// Parts of the help: the text before the options, and the line of an option (whose description
// names flags).
std::string opening_of(const Command& command);
std::string option_line(const Option& option);
// The text of docs/cli.md, and the same commands and options as data.
std::string cli_reference(std::span<const Command> commands);
Json cli_listing(std::span<const Command> commands);

}  // namespace tracestep::cli
