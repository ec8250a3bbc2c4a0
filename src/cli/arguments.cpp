#include "cli/arguments.h"

#include <algorithm>

#include <fmt/ranges.h>
#include <CLI/CLI.hpp>

#include "base/error.h"
#include "base/suggest.h"
#include "cli/output.h"
#include "cli/unknown_words.h"

namespace tracestep::cli {
namespace {

bool asks_for_help(const std::string& word) {
  return word == "--help" || word == "-h" || word == "help";
}

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

// The program's help, that of the command that is named behind it, or that of the architecture.
std::string help_on(std::span<const Command> commands, std::span<const std::string> arguments) {
  if (arguments.size() == 1) {
    return arguments[0] == "-h" ? command_list(commands) + "\n" : help_text(commands);
  }
  if (arguments[1] == kArchitectureTopic) return architecture_help(commands);
  return help_text(find_command(commands, arguments[1], {kArchitectureTopic}));
}

// More values than the option has: it is given again, or what follows belongs to nothing.
[[noreturn]] void fail_too_many(const Option& option, const std::vector<std::string>& values,
                                std::span<const std::string> arguments) {
  const auto given = std::ranges::count_if(arguments, [&](const std::string& word) {
    return word == option.flag || word.starts_with(option.flag + "=");
  });
  if (given > 1) fail_usage(option.flag, "it is given more than once");
  const bool is_list = option.value_name.find(',') != std::string::npos;
  throw Error(ErrorCode::kUsage, option.flag,
              fmt::format("\"{}\" belongs to no option",
                          values[static_cast<std::size_t>(option.max_values)]),
              is_list ? fmt::format("several values are separated by commas: {} {}", option.flag,
                                    fmt::join(values, ","))
                      : fmt::format("a name with a blank needs quotes: {} \"{}\"", option.flag,
                                    fmt::join(values, " ")));
}

// `takes_more`: whether extra words after the option count as its values (which is an error) or are
// left to the command's positional words.
void add_option(CLI::App& app, const Option& option, bool takes_more,
                std::span<const std::string> arguments) {
  if (option.max_values == 0) {
    app.add_flag_callback(option.flag, [&option] { option.read(option.flag, ""); });
    return;
  }
  app.add_option_function<std::vector<std::string>>(
         option.flag,
         [&option, arguments](const std::vector<std::string>& values) {
           const int count = static_cast<int>(values.size());
           if (count < option.min_values) {
             fail_usage(option.flag, "{} values are needed: {}", option.min_values,
                        option.value_name);
           }
           if (count > option.max_values) fail_too_many(option, values, arguments);
           for (const std::string& value : values) option.read(option.flag, value);
         })
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->expected(option.min_values, option.max_values)
      ->allow_extra_args(takes_more);
}

// "launch -n 2 train --steps 1" lacks the "--" that leaves what follows to train.
void check_mark(const Command& command, std::span<const std::string> words) {
  const std::vector<Positional>& positionals = command.options.positionals();
  if (positionals.empty() || !positionals.back().is_command() || words.empty()) return;
  if (words.front().starts_with("-")) return;
  throw Error(ErrorCode::kUsage, command.name,
              fmt::format("\"--\" is missing before {}", words.front()),
              fmt::format("put `--` before the command: tracestep {} [OPTION]... -- {} ...",
                          command.name, words.front()));
}

// The words that belong to no flag, in order.
void read_positionals(const Command& command, std::span<const std::string> words) {
  for (const std::string& word : words) {
    if (word.starts_with("-")) fail_unknown(command, word);
  }
  const std::vector<Positional>& positionals = command.options.positionals();
  if (words.size() > positionals.size()) fail_unknown(command, words[positionals.size()]);
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

// "--" and what follows, for a command that runs another one.
std::span<const std::string> words_behind(const Command& command,
                                          std::span<const std::string> arguments) {
  const std::vector<Positional>& positionals = command.options.positionals();
  if (positionals.empty() || !positionals.back().is_command()) return {};
  const auto mark = std::ranges::find(arguments, "--");
  return arguments.subspan(static_cast<std::size_t>(mark - arguments.begin()));
}

// CLI11 would read "--resume=false" as a switch that is off.
void check_switches(const Command& command, std::span<const std::string> arguments) {
  for (const Option& option : command.options.options()) {
    if (option.max_values > 0) continue;
    for (const std::string& word : arguments) {
      if (word.starts_with(option.flag + "=")) fail_usage(option.flag, "it takes no value");
    }
  }
}

// The option whose values are too few: CLI11 names it at the start of its message.
[[noreturn]] void fail_missing_value(const Command& command, const std::string& message) {
  for (const Option& option : command.options.options()) {
    if (message.starts_with(option.flag + ":") || message.starts_with(option.flag + " ")) {
      throw Error(ErrorCode::kUsage, option.flag, "the value is missing",
                  fmt::format("give {} {}", option.flag, option.value_name));
    }
  }
  fail_usage(command.name, "{}", message);
}

}  // namespace

const Command* parse_arguments(std::span<const Command> commands,
                               std::span<const std::string> arguments) {
  if (arguments.empty()) {
    write_text(command_list(commands) + "\n", {});
    throw Error(ErrorCode::kUsage, "tracestep", "say what to do",
                "as in: tracestep fit --size small --memory-limit 24GiB");
  }
  if (asks_for_help(arguments[0])) {
    write_text(help_on(commands, arguments), {});
    return nullptr;
  }
  const std::string& first = arguments[0];
  const Command& command = find_command(commands, first == "--version" ? "version" : first);
  const auto behind = words_behind(command, arguments);
  arguments = arguments.first(arguments.size() - behind.size());
  check_switches(command, arguments);
  CLI::App app;
  app.allow_extras();
  const bool takes_more = command.options.positionals().empty();
  for (const Option& option : command.options.options())
    add_option(app, option, takes_more, arguments);
  try {
    // CLI11 takes the words last to first.
    app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend() - 1));
  } catch (const CLI::CallForHelp&) {
    const bool is_whole = std::ranges::find(arguments, "--help") != arguments.end();
    write_text(is_whole ? help_text(command) : short_help(command), {});
    return nullptr;
  } catch (const CLI::ParseError& error) {
    fail_missing_value(command, error.what());
  }
  if (behind.empty()) check_mark(command, app.remaining());
  std::vector<std::string> words = app.remaining();
  if (behind.size() > 1) words.push_back(behind[1]);
  if (OutputOptions* output = command.options.output()) settle_format(*output);
  read_positionals(command, words);
  return &command;
}

}  // namespace tracestep::cli
