// docs/cli.md: every command, with the options that several of them share explained once; and the
// same commands and options as data.
#include <algorithm>
#include <map>
#include <tuple>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/command.h"
#include "cli/text_lines.h"

namespace tracestep::cli {
namespace {

constexpr const char* kIntroduction =
    R"(# The command line

One program, one command per question. Results go to stdout, or whole to `--output FILE`;
progress and messages go to stderr. Written by `tracestep show --docs cli`; a test keeps
it equal to what `--help` says. Options that several commands share are explained
[once](#shared-options), and named where they apply.

| exit status | meaning |
|---|---|
| 0 | done; also a sweep with rows that ran out of memory (`status` is `oom`) |
| 1 | the run failed |
| 2 | usage: an unknown command, flag, value or device name, sizes that do not fit |
| 3 | an input is missing, not a regular file, or malformed |
| 4 | a single run ran out of memory |
| 5 | an output cannot be written; found before the work starts |
| 6 | the device is missing from this build or machine |
| 7 | a gate that cannot be judged: rows are missing, invalid, empty or unclear |
| 8 | a loss, gradient or weight is not finite; `train` stops before the update |
| 129, 130, 143 | ended by SIGHUP, Ctrl-C (SIGINT) or SIGTERM |
| 142, 152 | ended by a limit of time: SIGALRM or SIGXCPU (`ulimit -S -t`) |

Messages read `tracestep: [where] what is wrong with the values seen; what would be
right`. `tracestep` alone lists the commands and ends with status 2, as a script that
lost its command should. Lists are separated by commas. `--flag=value` takes any value as it is, but for
an empty one, which is refused; in two words a value may not be a flag of the command. Behind `--` all
words are files, whatever they look like.

Numbers are read strictly: `8abc`, `1e309`, `-0` and 2^63 are errors. Counts may be written
`1e3`, `10k`, `1.5M`, `2B` (10^9) or `1T`; for contexts, batches and widths `4k` is 4096, which
their help says and a line on stderr. Sizes in bytes need a unit: `KiB`, `MiB`, `GiB`, `TiB` (powers of 1024),
`kB`, `MB`, `GB`, `TB` (of 1000) or `B`. Devices are named in any case and without blanks;
`gpu` is `cuda`.

As text a command that answers a question prints one sentence with the answer and one table,
at most 100 columns and 40 lines, into a pipe as on a terminal. What is the same in all rows
stands above the table, and the last line says what else there is: `--all` shows every table,
column and note, `--tables` and `--columns` choose. Files and the other formats have all.
A mark before a measured row says whether it is sound (`✓`), noisy (`~`) or impossible (`✗`:
it contradicts arithmetic by more than noise explains); the reasons stand below, once
([timing](timing.md#the-validity-checker)). Without UTF-8 in the locale the marks are `+`, `~`
and `x`, and `NO_COLOR` turns colours off. Grids and long runs say on stderr how far they are
and how long is left; Ctrl-C is answered at once. `tracestep COMMAND -h` is one screen,
`tracestep help COMMAND` all of it.
`tracestep completions SHELL` writes completions for bash, zsh and fish.

The first signal of those above ends a command behind the step under way, with what it has
so far; a second one ends it at once. SIGUSR1 and SIGUSR2 make `train` save a checkpoint and
go on; other commands say that there is nothing to save. SIGQUIT ends at once, with a core
file where the system keeps them. Children end with the command, however it ends.

`tracestep doctor` lists the environment variables that are read. All of them are checked
before a command starts, whether it uses them or not: a wrong value is status 2.

Every JSON result is an object with `schema` (the name and version of its layout),
`answer` (the sentence that a screen shows first, where there is one),
`environment` (machine, build and arguments, without folders or names of people),
`columns` (units and meaning) and `rows`.
)";

// What tells options of several commands apart: an option's heading, its flag and its help text.
using Meaning = std::tuple<std::string, std::string, std::string>;

Meaning meaning_of(const Option& option) {
  return {option.group, option.flag, option.doc};
}

// An option of several commands, with its commonest default.
struct SharedOption {
  Option option;
  std::map<std::string, int> defaults;  // of how many commands

  std::string usual_default() const {
    return std::ranges::max_element(defaults, {}, [](auto& d) { return d.second; })->first;
  }
};

// The options that several commands share, by heading, in the order of the first command with each.
class SharedOptions {
 public:
  explicit SharedOptions(std::span<const Command> commands) {
    constexpr int kFewest = 3;
    std::map<Meaning, int> counts;
    for (const Command& command : commands) {
      for (const Option& o : command.options.options()) ++counts[meaning_of(o)];
    }
    for (const Command& command : commands) {
      for (const Option& o : command.options.options()) {
        const Meaning meaning = meaning_of(o);
        if (counts[meaning] < kFewest) continue;
        if (!shared_.contains(meaning)) order_.push_back(meaning);
        SharedOption& shared = shared_[meaning];
        // A command that takes several values shows best how they are written.
        if (shared.option.value_name.size() <= o.value_name.size()) shared.option = o;
        shared.option.doc = std::get<2>(meaning);
        ++shared.defaults[o.default_text];
      }
    }
  }

  const SharedOption* find(const Option& option) const {
    const auto found = shared_.find(meaning_of(option));
    return found == shared_.end() ? nullptr : &found->second;
  }

  std::string text() const {
    std::vector<std::string> groups;
    for (const Meaning& meaning : order_) {
      const std::string& group = std::get<0>(meaning);
      if (std::ranges::find(groups, group) == groups.end()) groups.push_back(group);
    }
    std::string out;
    for (const std::string& group : groups) {
      out += fmt::format("{}{}:\n", out.empty() ? "" : "\n", group);
      for (const Meaning& meaning : order_) {
        if (std::get<0>(meaning) != group) continue;
        const SharedOption& shared = shared_.at(meaning);
        Option option = shared.option;
        option.default_text = shared.usual_default();
        out += option_line(option);
      }
    }
    return out;
  }

 private:
  std::map<Meaning, SharedOption> shared_;
  std::vector<Meaning> order_;
};

// Names a shared option, "--batch N [default: 8]", with a default that is not the usual one.
std::string named(const Option& option, const SharedOption& shared) {
  std::string out = option.flag;
  const bool is_usual = option.default_text == shared.usual_default();
  if (option.value_name != shared.option.value_name) out += " " + option.value_name;
  if (!is_usual) {
    out +=
        fmt::format(" [default: {}]", option.default_text.empty() ? "none" : option.default_text);
  }
  return out;
}

// Writes the options of one command: its own in full, then the names of those it shares.
std::string reference_of(const Command& command, const SharedOptions& shared) {
  std::string own, group;
  std::vector<std::string> groups;
  std::map<std::string, std::vector<std::string>> names;
  for (const Option& option : command.options.options()) {
    if (const SharedOption* found = shared.find(option)) {
      if (!names.contains(option.group)) groups.push_back(option.group);
      names[option.group].push_back(named(option, *found));
      continue;
    }
    if (option.group != group) own += (own.empty() ? "" : "\n") + option.group + ":\n";
    group = option.group;
    own += option_line(option);
  }
  if (!groups.empty() && !own.empty()) own += "\n";
  if (!groups.empty()) own += "Shared:\n";
  for (const std::string& title : groups) {
    const std::string lead = fmt::format("  {}: ", title);
    own += wrapped(lead, lead.size(), fmt::format("{}", fmt::join(names[title], ", ")));
  }
  return own;
}

}  // namespace

std::string cli_reference(std::span<const Command> commands) {
  const SharedOptions shared(commands);
  std::string out = kIntroduction;
  for (const Command& command : commands) {
    out += fmt::format("\n## {}\n\n```text\n{}{}```\n", command.name, opening_of(command),
                       reference_of(command, shared));
  }
  return out + "\n## Shared options\n\n```text\n" + shared.text() + "```\n";
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
                                     {"help", option.doc}});
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
