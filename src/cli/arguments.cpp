#include "cli/arguments.h"

#include <algorithm>

#include <fmt/ranges.h>

#include "base/error.h"
#include "base/suggest.h"
#include "cli/output.h"
#include "cli/syntax.h"
#include "cli/unknown_words.h"

namespace tracestep::cli {
namespace {

const Command& find_command(std::span<const Command> commands, const std::string& name,
                            std::vector<std::string> names = {}) {
  for (const Command& command : commands) {
    if (command.name == name) return command;
    names.push_back(command.name);
  }
  const bool is_flag = name.starts_with("-");
  throw Error(ErrorCode::kUsage, "tracestep",
              is_flag
                  ? fmt::format("the command comes first, then {}", name)
                  : fmt::format("there is no command \"{}\"{}", name, did_you_mean(name, names)),
              "tracestep --help lists them");
}

// The help that is asked for: the program's, a command's, or that on the architecture.
std::string help_on(std::span<const Command> commands, std::span<const std::string> arguments) {
  if (arguments.size() == 1) {
    return arguments[0] == "-h" ? command_list(commands) + "\n" : help_text(commands);
  }
  if (arguments[1] == kArchitectureTopic) return architecture_help(commands);
  return help_text(find_command(commands, arguments[1], {kArchitectureTopic}));
}

// Throws an error for more values than the option takes: the next word belongs to no option.
[[noreturn]] void fail_too_many(const Option& option, const Words& values) {
  const bool is_list = option.value_name.find(',') != std::string::npos;
  throw Error(ErrorCode::kUsage, option.flag,
              fmt::format("\"{}\" belongs to no option",
                          values[static_cast<std::size_t>(option.max_values)]),
              is_list ? fmt::format("several values are separated by commas: {} {}", option.flag,
                                    fmt::join(values, ","))
                      : fmt::format("a name with a blank needs quotes: {} \"{}\"", option.flag,
                                    fmt::join(values, " ")));
}

// Throws for words after an option's values if the command takes no words: the option was meant.
void check_stray_words(const OptionSet& set, const CommandLine& line) {
  if (!set.positionals().empty()) return;
  for (std::size_t i = 1; i < line.parts.size(); ++i) {
    const auto is_stray = [&](std::size_t at) {
      return line.parts[at].flag.empty() && !line.parts[at].values[0].starts_with("-");
    };
    const Option* before = set.find(line.parts[i - 1].flag);
    if (before == nullptr || before->max_values == 0 || !is_stray(i)) continue;
    Words values = line.parts[i - 1].values;
    for (; i < line.parts.size() && is_stray(i); ++i) values.push_back(line.parts[i].values[0]);
    fail_too_many(*before, values);
  }
}

// Reads the values of an option, which may be given several times.
void read_option(const Option& option, const CommandLine& line) {
  Words values;
  int given = 0;
  for (const CommandLine::Part& part : line.parts) {
    if (part.flag != option.flag) continue;
    ++given;
    values.insert(values.end(), part.values.begin(), part.values.end());
  }
  if (given == 0) return;
  if (option.max_values == 0) return option.read(option.flag, "");
  const int count = static_cast<int>(values.size());
  if (count < option.min_values) {
    fail_usage(option.flag, "{} values are needed: {}", option.min_values, option.value_name);
  }
  if (count > option.max_values) fail_usage(option.flag, "it is given more than once");
  for (const std::string& value : values) option.read(option.flag, value);
}

Words words_of_none(const CommandLine& line) {
  Words out;
  for (const CommandLine::Part& part : line.parts) {
    if (part.flag.empty()) out.push_back(part.values[0]);
  }
  return out;
}

// Refuses "launch -n 2 train --steps 1", which lacks the "--" that leaves the rest to train.
void check_mark(const Command& command, std::span<const std::string> words) {
  if (words.empty() || words.front().starts_with("-")) return;
  throw Error(ErrorCode::kUsage, command.name,
              fmt::format("\"--\" is missing before {}", words.front()),
              fmt::format("put `--` before the command: tracestep {} [OPTION]... -- {} ...",
                          command.name, words.front()));
}

// Reads the words that belong to no flag, in order; words after "--" are no flags.
void read_positionals(const Command& command, const CommandLine& line) {
  Words words = words_of_none(line);
  const std::vector<Positional>& positionals = command.options.positionals();
  const bool has_command = !positionals.empty() && positionals.back().is_command();
  if (has_command && line.behind.empty()) check_mark(command, words);
  for (const std::string& word : words) {
    if (word.starts_with("-")) fail_unknown(command, word);
  }
  const std::size_t own = positionals.size() - (has_command ? 1 : 0);
  if (words.size() > own) fail_unknown(command, words[own]);
  words.insert(words.end(), line.behind.begin(), line.behind.end());
  if (words.size() > positionals.size() && !has_command) {
    const std::string& word = words[positionals.size()];
    if (!word.starts_with("-")) fail_unknown(command, word);
    throw Error(ErrorCode::kUsage, command.name,  // after "--" it is no flag
                fmt::format("\"{}\" belongs to no option", word),
                fmt::format("tracestep {} --help lists the options", command.name));
  }
  for (std::size_t i = 0; i < positionals.size(); ++i) {
    if (i < words.size()) {
      positionals[i].read(positionals[i].name, words[i]);
    } else if (positionals[i].is_required) {
      throw Error(ErrorCode::kUsage, command.name,
                  fmt::format("{} is missing: {}", positionals[i].name, positionals[i].doc),
                  fmt::format("tracestep {} --help shows how it is called", command.name));
    }
  }
}

// Prints the help that is asked for before "--", whatever else is there; false: none is.
bool gives_help(const Command& command, std::span<const std::string> words) {
  const auto end = std::ranges::find(words, "--");
  if (std::find_if(words.begin(), end, asks_for_help) == end) return false;
  const bool is_whole = std::find(words.begin(), end, "--help") != end;
  write_text(is_whole ? help_text(command) : short_help(command), {});
  return true;
}

}  // namespace

const Command* parse_arguments(std::span<const Command> commands,
                               std::span<const std::string> arguments) {
  if (arguments.empty()) {
    write_text(command_list(commands) + "\n", {});
    throw Error(ErrorCode::kUsage, "tracestep", "say what to do",
                "as in: tracestep fit --size small --memory-limit 24GiB");
  }
  if (asks_for_help(arguments[0]) || arguments[0] == "help") {
    write_text(help_on(commands, arguments), {});
    return nullptr;
  }
  const std::string& first = arguments[0];
  const Command& command = find_command(commands, first == "--version" ? "version" : first);
  const std::span<const std::string> words = arguments.subspan(1);
  if (gives_help(command, words)) return nullptr;
  const OptionSet& set = command.options;
  const CommandLine line = read_command_line(set, words);
  check_stray_words(set, line);
  for (const Option& option : set.options()) read_option(option, line);
  if (OutputOptions* output = set.output()) settle_format(*output);
  read_positionals(command, line);
  return &command;
}

}  // namespace tracestep::cli
