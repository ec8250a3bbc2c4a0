#include "cli/compare_runs.h"

#include <algorithm>
#include <chrono>
#include <random>
#include <sstream>

#include <fmt/format.h>

#include "base/error.h"
#include "base/log.h"
#include "cli/child_process.h"
#include "cli/command.h"
#include "lab/compare/interleaved.h"
#include "lab/measure/environment.h"
#include "lab/measure/processes.h"
#include "lab/report/known_columns.h"

namespace tracestep::cli {
namespace {

// Returns "--format json" for a command line that ends in a command of this program, of whatever
// build, that has formats and is given none; nothing for all others, which are run as they are.
std::vector<std::string> format_for(const std::string& command) {
  std::istringstream in(command);
  std::vector<std::string> words;
  for (std::string word; in >> word;) {
    std::erase_if(word, [](char c) { return c == '\'' || c == '"'; });
    words.push_back(word);
  }
  const auto program = std::ranges::find_if(words, [](const std::string& word) {
    return std::filesystem::path(word).filename().string().starts_with("tracestep");
  });
  if (program == words.end() || program + 1 == words.end()) return {};
  const auto is_for_the_shell = [](const std::string& word) {
    return word.find_first_of("|&;<>") != word.npos;
  };
  if (std::any_of(program, words.end(), is_for_the_shell)) return {};
  const auto& all = all_commands();
  const auto ours = std::ranges::find(all, *(program + 1), &Command::name);
  if (ours == all.end() || ours->options.find("--format") == nullptr) return {};
  const bool is_given = command.find("--format") != command.npos;
  return is_given ? std::vector<std::string>() : std::vector<std::string>{"--format", "json"};
}

// Makes a result of the wall time of a command that prints none.
Json result_of_time(const std::string& command, double ms) {
  const TimedSamples samples({ms});
  Fields<TimedSamples> fields{{as_key(col::command), [&](const TimedSamples&) { return command; }},
                              {col::status, [](const TimedSamples&) { return "ok"; }}};
  fields.add(sample_columns(), [](const TimedSamples& s) { return &s; });
  Table table{.name = "commands", .title = "Wall time", .columns = fields.columns()};
  table.add_row(fields.row(samples));
  return to_json({"tracestep.command/1", capture_environment({}), {std::move(table)}});
}

// The outcome of one run of a command.
struct Ran {
  Json result;
  bool is_time = false;  // true if it printed no result: then its wall time is the result
};

// Reads the result that a command printed; nullopt: it printed nothing that could be compared.
std::optional<Json> printed_result(const std::string& text) {
  try {
    Json out = Json::parse(text, "--run");
    result_of(out, "--run");
    return out;
  } catch (const Error&) {
    return std::nullopt;
  }
}

// Runs the command; its result, or its wall time if it prints none. nullopt: it ended, or failed,
// because of the signal that was passed on to it.
std::optional<Ran> run_once(const std::string& command, const StopSignal& stop) {
  const std::vector<std::string> format = format_for(command);
  const auto begin = std::chrono::steady_clock::now();
  const ProcessResult process = run_command(command, format);
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
  if (stop.requested()) return std::nullopt;
  std::optional<Json> result = printed_result(process.out);
  const bool is_result = result && process.status == exit_code(ErrorCode::kOutOfMemory);
  if (process.status != 0 && !is_result) {
    throw Error(ErrorCode::kFailed, "--run",
                fmt::format("`{}{}{}` ended with status {}: {}", command, format.empty() ? "" : " ",
                            fmt::join(format, " "), process.status, last_line(process.err)));
  }
  if (result) return Ran{*std::move(result)};
  return Ran{result_of_time(command, took.count()), true};
}

// Fails unless all runs, of one command or of both, print results, or none of them does.
void check_kind(const Ran& ran, const Ran& first, const std::string& command,
                const std::string& first_command) {
  if (ran.is_time == first.is_time) return;
  const std::string& with = ran.is_time ? first_command : command;
  const std::string& without = ran.is_time ? command : first_command;
  throw Error(ErrorCode::kInput, "--run",
              with == without
                  ? fmt::format("`{}` prints a result in some runs and in others none", with)
                  : fmt::format("`{}` prints a result, and `{}` prints none", with, without),
              "give two commands that print results, or two that are to be timed as a whole");
}

}  // namespace

std::optional<RunPair> run_in_pairs(const std::string& a, const std::string& b, int processes,
                                    const StopSignal& stop) {
  const std::uint64_t seed = std::random_device()();
  std::vector<Json> of_a, of_b;
  std::optional<Ran> first;
  std::string first_command;
  ProgressLine progress;
  for (int turn = 0; turn < 2 * processes; ++turn) {
    const bool is_second = turn % 2 == 1;
    const bool is_b = is_b_first(turn / 2, seed) != is_second;
    progress.update(fmt::format("{}/{}  {}", turn + 1, 2 * processes, is_b ? "B" : "A"));
    std::optional<Ran> ran = run_once(is_b ? b : a, stop);
    if (!ran) return std::nullopt;
    if (!first) {
      first = ran;
      first_command = is_b ? b : a;
    }
    check_kind(*ran, *first, is_b ? b : a, first_command);
    (is_b ? of_b : of_a).push_back(std::move(ran->result));
  }
  progress.done();
  if (first->is_time) {
    log_info("the commands print no results: the time that each takes as a whole is compared");
  }
  return RunPair{result_of(merged_result(of_a, "--run"), "A"),
                 result_of(merged_result(of_b, "--run"), "B")};
}

}  // namespace tracestep::cli
