// The list of commands, and what `--help` says of them.
#include <algorithm>
#include <optional>
#include <sstream>
#include <string_view>

#include <fmt/format.h>

#include "base/error.h"
#include "cli/command.h"
#include "cli/flag_names.h"
#include "cli/jobs.h"
#include "cli/pictures.h"
#include "cli/text_lines.h"
#include "lab/pages/first_answer.h"

namespace tracestep::cli {

#define EACH(NAME) Command NAME##_command();
#include "embedded/commands.inc"
#undef EACH

namespace {

constexpr Command (*kMakers[])() = {
#define EACH(NAME) NAME##_command,
#include "embedded/commands.inc"
#undef EACH
};

// The headings of the help text, in its order.
constexpr std::string_view kSections[] = {"Measure", "Plan, without running",
                                          "Train and use a model", "Results", "This program"};

constexpr std::size_t kFlagColumns = 34;  // flags and their values, before the explanation

constexpr const char* kExitCodes =
    "0 done (also a sweep with rows that ran out of memory)   1 failed\n"
    "2 unknown command, flag, value or device   3 an input is missing or malformed\n"
    "4 a single run ran out of memory   5 an output cannot be written\n"
    "6 the device is missing   7 a gate that cannot be judged (compare --fail-on-regression)\n"
    "8 met a number that is not finite   129, 130, 143 ended by SIGHUP, Ctrl-C, SIGTERM\n"
    "142, 152 ended by a limit of time (SIGALRM, SIGXCPU)\n";

void read_page(Command& command) {
  const pages::Page& page = pages::command_page(command.name);
  const auto section = std::ranges::find(kSections, page.head[2]);
  TRACESTEP_CHECK(section != std::end(kSections), "{}: no heading \"{}\"", command.name,
                  page.head[2]);
  command.section = static_cast<std::size_t>(section - std::begin(kSections));
  command.summary = page.text("Question");
  command.details = page.text("Details");
  for (const auto& [label, text] : page.labelled) {
    if (label != "Example") continue;
    const std::vector<std::string> parts = pages::split(text, "|");
    TRACESTEP_CHECK(parts.size() == 2, "{}: \"{}\" is no example", command.name, text);
    command.examples.emplace_back(parts[0], parts[1]);
  }
}

}  // namespace

std::string option_line(const Option& option) {
  std::string lead = "  " + option.flag;
  if (!option.value_name.empty()) lead += " " + option.value_name;
  std::string doc = option.doc;
  if (!option.default_text.empty()) doc += fmt::format(" [default: {}]", option.default_text);
  return wrapped(lead + " ", kFlagColumns, doc);
}

const std::vector<Command>& all_commands() {
  static const std::vector<Command> commands = [] {
    std::vector<Command> out;
    for (auto* make : kMakers) {
      out.push_back(make());
      read_page(out.back());
      add_pictures(out.back());
      if (!out.back().divided.empty() && out.back().options.output() != nullptr) {
        add_parts(out.back());
      }
      if (out.back().plan) add_sbatch(out.back());
    }
    std::ranges::stable_sort(out, {}, &Command::section);  // by name within each
    return out;
  }();
  return commands;
}

std::string command_list(std::span<const Command> commands) {
  std::string out =
      "tracestep: what a Transformer training step does, where its time and its bytes go.\n\n"
      "Usage: tracestep COMMAND [OPTION]...\n";
  std::optional<std::size_t> section;
  for (const Command& command : commands) {
    if (section != command.section) out += fmt::format("\n{}:\n", kSections[command.section]);
    section = command.section;
    out += fmt::format("  {:<11} {}\n", command.name, command.summary);
  }
  return out + "\ntracestep help COMMAND explains a command.";
}

std::string help_text(std::span<const Command> commands) {
  return command_list(commands) +
         " Results go to stdout, progress and messages to stderr.\n\nExit status:\n" + kExitCodes;
}

namespace {

std::string usage_of(const Command& command) {
  std::string words, behind;
  for (const Positional& p : command.options.positionals()) {
    (p.is_command() ? behind : words) +=
        p.is_required ? " " + p.name : fmt::format(" [{}]", p.name);
  }
  return fmt::format("tracestep {}: {}\n\nUsage: tracestep {}{}{}{}\n\n", command.name,
                     command.summary, command.name, words,
                     command.options.options().empty() ? "" : " [OPTION]...", behind);
}

}  // namespace

std::string examples_of(const Command& command) {
  std::string out = command.examples.empty() ? "" : "\nExamples:\n";
  for (const auto& [arguments, meaning] : command.examples) {
    out += fmt::format("  tracestep {}{}{}\n      {}\n", command.name, arguments.empty() ? "" : " ",
                       arguments, meaning);
  }
  return out;
}

namespace {

// The options of the command's examples, in their order, then those that most commands share, and
// the first ones of its own.
std::vector<const Option*> commonest_options(const Command& command) {
  constexpr std::size_t kMost = 10;
  constexpr std::string_view kShared[] = {
      "--size",  "--model",     "--text",         "--batch",     "--context",
      "--mode",  "--published", "--memory-limit", "--precision", "--device",
      "--steps", "--tables",    "--format",       "--all",       "--output"};
  std::vector<std::string> flags;
  for (const auto& [arguments, meaning] : command.examples) {
    std::istringstream words(arguments);
    // What stands behind "--" is another command's.
    for (std::string word; words >> word && word != "--";) flags.push_back(std::move(word));
  }
  flags.insert(flags.end(), std::begin(kShared), std::end(kShared));
  const auto& all = command.options.options();
  for (const Option& option : all) {
    if (option.group == all.front().group) flags.push_back(option.flag);
  }
  std::vector<const Option*> out;
  for (const std::string& flag : flags) {
    const auto found = std::ranges::find(all, flag, &Option::flag);
    if (found == all.end() || found->group == "On a cluster" || out.size() == kMost) continue;
    if (std::ranges::find(out, &*found) == out.end()) out.push_back(&*found);
  }
  return out;
}

// The first thing that a help says, in the rest of a line.
std::string first_words(std::string text, std::size_t most) {
  for (std::string_view end : {"; ", ". "}) text = text.substr(0, text.find(end));
  if (text.size() <= most) return text;
  return text.substr(0, text.rfind(' ', most - 3)) + " ...";
}

}  // namespace

std::string short_help(const Command& command) {
  std::string out = usage_of(command);
  for (const Option* option : commonest_options(command)) {
    const std::string lead = fmt::format("  {}{}{} ", option->flag,
                                         option->value_name.empty() ? "" : " ", option->value_name);
    const std::string doc =
        first_words(with_flags(command.options, option->doc), 100 - kFlagColumns);
    out += wrapped(lead, kFlagColumns, doc);
  }
  return out + examples_of(command) +
         fmt::format("\ntracestep {} --help has all options.\n", command.name);
}

std::string opening_of(const Command& command) {
  std::string out = usage_of(command);
  if (!command.details.empty()) out += wrapped("", 0, command.details) + "\n";
  for (const Positional& p : command.options.positionals()) {
    out += wrapped("  " + p.name + " ", kFlagColumns, p.doc);
  }
  if (!command.options.positionals().empty()) out += "\n";
  return out;
}

std::string help_text(const Command& command) {
  std::string out = opening_of(command), group;
  for (Option option : command.options.options()) {
    if (option.group != group) out += (group.empty() ? "" : "\n") + option.group + ":\n";
    group = option.group;
    option.doc = with_flags(command.options, option.doc);
    out += option_line(option);
  }
  return out + examples_of(command);
}

}  // namespace tracestep::cli
