// The texts of `help`, `--help` and `-h`: the program, a command in full or on a screen, and the
// options that tell architectures apart.
#include <algorithm>
#include <optional>
#include <sstream>
#include <string_view>

#include <fmt/format.h>

#include "cli/command.h"
#include "cli/options.h"
#include "cli/text_lines.h"

namespace tracestep::cli {
namespace {

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

std::string usage_of(const Command& command) {
  std::string words, behind;
  for (const Positional& p : command.options.positionals()) {
    (p.is_command() ? behind : words) +=
        p.is_required ? " " + p.name : fmt::format(" [{}]", p.name);
  }
  return fmt::format("tracestep {}: {}\n\nUsage: tracestep {}{}{}{}\n", command.name,
                     command.summary, command.name, words,
                     command.options.options().empty() ? "" : " [OPTION]...", behind);
}

// Writes the command's examples, at most `most` of them.
std::string examples_of(const Command& command, std::size_t most) {
  std::string out = command.examples.empty() ? "" : "\nExamples:\n";
  for (const auto& [arguments, meaning] : command.examples) {
    if (most-- == 0) break;
    out += fmt::format("  tracestep {}{}{}\n      {}\n", command.name, arguments.empty() ? "" : " ",
                       arguments, meaning);
  }
  return out;
}

// Returns at most ten options: those of the command's examples, in their order, then those that
// most commands share, then the first ones of its own.
std::vector<const Option*> commonest_options(const Command& command) {
  constexpr std::size_t kMost = 10;
  constexpr std::string_view kShared[] = {
      "--size",  "--model",     "--text",         "--batch",     "--context",
      "--mode",  "--published", "--memory-limit", "--precision", "--device",
      "--steps", "--tables",    "--format",       "--all",       "--output"};
  std::vector<std::string> flags;
  for (const auto& [arguments, meaning] : command.examples) {
    std::istringstream words(arguments);
    // Words after "--" belong to another command.
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

// The first sentence of a help text, cut to the rest of a line.
std::string first_words(std::string text, std::size_t most) {
  for (std::string_view end : {"; ", ". "}) text = text.substr(0, text.find(end));
  if (text.size() <= most) return text;
  return text.substr(0, text.rfind(' ', most - 3)) + " ...";
}

bool is_of_architecture(const Option& option) {
  return option.group == kArchitectureGroup;
}

std::string options_of(const Command& command) {
  std::string out, group;
  for (const Option& option : command.options.options()) {
    const bool is_new = option.group != group;
    if (is_new) out += (group.empty() ? "" : "\n") + option.group + ":\n";
    group = option.group;
    if (!is_of_architecture(option)) {
      out += option_line(option);
    } else if (is_new) {
      const auto count = std::ranges::count_if(command.options.options(), is_of_architecture);
      out += fmt::format("  {} options from {} on: tracestep help {}\n", count, option.flag,
                         kArchitectureTopic);
    }
  }
  return out;
}

}  // namespace

std::span<const std::string_view> help_sections() {
  return kSections;
}

std::string option_line(const Option& option) {
  std::string lead = "  " + option.flag;
  if (!option.value_name.empty()) lead += " " + option.value_name;
  std::string doc = option.doc;
  if (!option.default_text.empty()) doc += fmt::format(" [default: {}]", option.default_text);
  return wrapped(lead + " ", kFlagColumns, doc);
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

std::string opening_of(const Command& command) {
  std::string out = usage_of(command) + examples_of(command, command.examples.size()) + "\n";
  if (!command.details.empty()) out += wrapped("", 0, command.details) + "\n";
  for (const Positional& p : command.options.positionals()) {
    out += wrapped("  " + p.name + " ", kFlagColumns, p.doc);
  }
  if (!command.options.positionals().empty()) out += "\n";
  return out;
}

std::string help_text(const Command& command) {
  return opening_of(command) + options_of(command);
}

std::string short_help(const Command& command) {
  constexpr std::size_t kExamples = 3;
  std::string out = usage_of(command) + examples_of(command, kExamples) + "\n";
  for (const Option* option : commonest_options(command)) {
    const std::string lead = fmt::format("  {}{}{} ", option->flag,
                                         option->value_name.empty() ? "" : " ", option->value_name);
    const std::string doc = first_words(option->doc, 100 - kFlagColumns);
    out += wrapped(lead, kFlagColumns, doc);
  }
  return out + fmt::format("\ntracestep help {} has all options.\n", command.name);
}

std::string architecture_help(std::span<const Command> commands) {
  std::string takers, lines;
  for (const Command& command : commands) {
    if (std::ranges::none_of(command.options.options(), is_of_architecture)) continue;
    takers += (takers.empty() ? "" : ", ") + command.name;
    if (!lines.empty()) continue;
    for (const Option& option : command.options.options()) {
      if (!is_of_architecture(option)) continue;
      lines += option_line(option);
    }
  }
  return fmt::format("tracestep help {}: what tells architectures apart\n\n", kArchitectureTopic) +
         wrapped("", 0,
                 fmt::format("Each of them comes with --model and --size; these options change it, "
                             "or describe a model of --d-model, --d-ff, --layers and --heads. {} "
                             "take them.",
                             takers)) +
         "\n" + lines;
}

}  // namespace tracestep::cli
