// The list of commands, and what `--help` and docs/cli.md say of them.
#include <algorithm>
#include <optional>
#include <string_view>

#include <fmt/format.h>

#include "cli/command.h"
#include "cli/flag_names.h"
#include "cli/in_parts.h"
#include "cli/pictures.h"
#include "cli/sbatch.h"
#include "cli/text_wrap.h"
#include "spec/fields.h"

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

std::string_view title_of(Section section) {
  switch (section) {
    case Section::kMeasure: return "Measure";
    case Section::kPlan: return "Plan, without running";
    case Section::kTrain: return "Train and use a model";
    case Section::kResults: return "Results";
    case Section::kProgram: return "This program";
  }
  return "";
}

constexpr std::size_t kFlagColumns = 34;  // flags and their values, before the explanation

constexpr const char* kExitCodes =
    "0 done (also a sweep with rows that ran out of memory)   1 failed\n"
    "2 unknown command, flag, value or device   3 an input is missing or malformed\n"
    "4 a single run ran out of memory   5 an output cannot be written\n"
    "6 the device is missing   7 a gate that cannot be judged (compare --fail-on-regression)\n"
    "8 met a number that is not finite   129, 130, 143 ended by SIGHUP, Ctrl-C, SIGTERM\n"
    "142, 152 ended by a limit of time (SIGALRM, SIGXCPU)\n";

std::string option_line(const OptionSet& options, const Option& option) {
  std::string lead = "  " + option.flag;
  if (!option.value_name.empty()) lead += " " + option.value_name;
  std::string doc = with_flags(options, option.doc);
  if (!option.default_text.empty()) doc += fmt::format(" [default: {}]", option.default_text);
  return wrapped(lead + " ", kFlagColumns, doc);
}

}  // namespace

const std::vector<Command>& all_commands() {
  static const std::vector<Command> commands = [] {
    std::vector<Command> out;
    for (auto* make : kMakers) {
      out.push_back(make());
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
  std::optional<Section> section;
  for (const Command& command : commands) {
    if (section != command.section) out += fmt::format("\n{}:\n", title_of(command.section));
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

std::string examples_of(const Command& command) {
  std::string out = command.examples.empty() ? "" : "\nExamples:\n";
  for (const auto& [arguments, meaning] : command.examples) {
    out += fmt::format("  tracestep {}{}{}\n      {}\n", command.name, arguments.empty() ? "" : " ",
                       arguments, meaning);
  }
  return out;
}

// The command's own options that come first, then those that most commands share.
std::vector<const Option*> commonest_options(const Command& command) {
  constexpr std::size_t kMost = 10, kOwn = 4;
  constexpr std::string_view kShared[] = {
      "--size",  "--model",     "--text",         "--batch",     "--context",
      "--mode",  "--published", "--memory-limit", "--precision", "--device",
      "--steps", "--tables",    "--format",       "--all",       "--output"};
  const auto& all = command.options.options();
  const auto is_shared = [&](const Option& o) {
    return std::ranges::find(kShared, o.flag) != std::end(kShared);
  };
  std::vector<const Option*> out;
  for (const Option& option : all) {
    const auto is_field = [&](const RunField& field) { return field.flag == option.flag; };
    const bool is_own = option.group == all.front().group && !is_shared(option) &&
                        std::ranges::none_of(run_fields(), is_field);
    if (is_own && out.size() < kOwn) out.push_back(&option);
  }
  for (std::string_view flag : kShared) {
    const auto found = std::ranges::find(all, flag, &Option::flag);
    const bool is_own = found != all.end() && found->group != "On a cluster";
    if (is_own && out.size() < kMost) out.push_back(&*found);
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

std::string help_text(const Command& command) {
  std::string out = usage_of(command);
  if (!command.details.empty()) out += wrapped("", 0, command.details) + "\n";
  for (const Positional& p : command.options.positionals()) {
    out += wrapped("  " + p.name + " ", kFlagColumns, p.doc);
  }
  if (!command.options.positionals().empty()) out += "\n";
  std::string group;
  for (const Option& option : command.options.options()) {
    if (option.group != group) out += (group.empty() ? "" : "\n") + option.group + ":\n";
    group = option.group;
    out += option_line(command.options, option);
  }
  return out + examples_of(command);
}

std::string cli_reference(std::span<const Command> commands) {
  std::string out =
      "# The command line\n\n"
      "One program, one command per question. Results go to stdout, or whole to `--output FILE`;\n"
      "progress and messages go to stderr. Written by `tracestep show --docs cli`; a test keeps\n"
      "it equal to what `--help` says.\n\n"
      "| exit status | meaning |\n|---|---|\n"
      "| 0 | done; also a sweep with rows that ran out of memory (`status` is `oom`) |\n"
      "| 1 | the run failed |\n"
      "| 2 | usage: an unknown command, flag, value or device name, sizes that do not fit |\n"
      "| 3 | an input is missing, not a regular file, or malformed |\n"
      "| 4 | a single run ran out of memory |\n"
      "| 5 | an output cannot be written; found before the work starts |\n"
      "| 6 | the device is missing from this build or machine |\n"
      "| 7 | a gate that cannot be judged: rows are missing, invalid, empty or unclear |\n"
      "| 8 | a loss, gradient or weight is not finite; `train` stops before the update |\n"
      "| 129, 130, 143 | ended by SIGHUP, Ctrl-C (SIGINT) or SIGTERM |\n"
      "| 142, 152 | ended by a limit of time: SIGALRM or SIGXCPU (`ulimit -S -t`) |\n\n"
      "Messages read `tracestep: [where] what is wrong with the values seen; what would be\n"
      "right`. `tracestep` alone lists the commands and ends with status 2, as a script that\n"
      "lost its command should. Lists are separated by commas.\n\n"
      "Numbers are read strictly: `8abc`, `1e309`, `-0` and 2^63 are errors. Counts may be "
      "written\n"
      "`1e3`, `10k`, `1.5M`, `2B` (10^9) or `1T`; for contexts, batches and widths `4k` is 4096, "
      "which\n"
      "their help says and a line on stderr. Sizes in bytes need a unit: `KiB`, `MiB`, `GiB`, "
      "`TiB` (powers of 1024),\n"
      "`kB`, `MB`, `GB`, `TB` (of 1000) or `B`. Devices are named in any case and without blanks;\n"
      "`gpu` is `cuda`.\n\n"
      "As text a command that answers a question prints one sentence with the answer and one "
      "table,\n"
      "at most 100 columns and 40 lines, into a pipe as on a terminal. What is the same in all "
      "rows\n"
      "stands above the table, and the last line says what else there is: `--all` shows every "
      "table,\n"
      "column and note, `--tables` and `--columns` choose. Files and the other formats have all.\n"
      "A mark before a measured row says whether it is sound (`✓`), noisy (`~`) or impossible "
      "(`✗`:\n"
      "it contradicts arithmetic by more than noise explains); the reasons stand below, once\n"
      "([timing](timing.md#validity)). Without UTF-8 in the locale the marks are `+`, `~` and "
      "`x`,\n"
      "and `NO_COLOR` turns colours off. Grids and long runs say on stderr how far they are and "
      "how\n"
      "long is left; Ctrl-C is answered at once. `tracestep COMMAND -h` is one screen.\n"
      "`tracestep completions SHELL` writes completions for bash, zsh and fish.\n\n"
      "The first signal of those above ends a command behind the step under way, with what it has\n"
      "so far; a second one ends it at once. SIGUSR1 and SIGUSR2 make `train` save a checkpoint "
      "and\n"
      "go on; other commands say that there is nothing to save. SIGQUIT ends at once, with a core\n"
      "file where the system keeps them. Children end with the command, however it ends.\n\n"
      "`tracestep doctor` lists the environment variables that are read. All of them are checked\n"
      "before a command starts, whether it uses them or not: a wrong value is status 2.\n\n"
      "Every JSON result is an object with `schema` (the name and version of its layout),\n"
      "`environment` (machine, build and arguments, without folders or names of people),\n"
      "`columns` (units and meaning) and `rows`.\n";
  for (const Command& command : commands) {
    out += fmt::format("\n## {}\n\n```text\n{}```\n", command.name, help_text(command));
  }
  return out;
}

Json cli_listing(std::span<const Command> commands) {
  Json out = Json::object();
  out["schema"] = "tracestep.cli/1";
  out["commands"] = Json::array();
  for (const Command& command : commands) {
    Json options = Json::array(), words = Json::array();
    for (const Option& option : command.options.options()) {
      Json choices = Json::array();
      for (const std::string& choice : option.offered) choices.push_back(choice);
      options.push_back(Json::Object{{"flag", option.flag},
                                     {"value", option.value_name},
                                     {"least_values", option.min_values},
                                     {"most_values", option.max_values},
                                     {"default", option.default_text},
                                     {"choices", std::move(choices)},
                                     {"help", with_flags(command.options, option.doc)}});
    }
    for (const Positional& p : command.options.positionals()) {
      words.push_back(
          Json::Object{{"name", p.name}, {"is_required", p.is_required}, {"help", p.doc}});
    }
    out["commands"].push_back(Json::Object{{"name", command.name},
                                           {"summary", command.summary},
                                           {"options", std::move(options)},
                                           {"words", std::move(words)}});
  }
  return out;
}

}  // namespace tracestep::cli
