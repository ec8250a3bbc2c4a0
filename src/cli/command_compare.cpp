// tracestep compare: compares two results row by row, and says which differences chance explains.
#include <filesystem>
#include <memory>

#include "base/error.h"
#include "base/log.h"
#include "base/signals.h"
#include "cli/command.h"
#include "cli/compare_runs.h"
#include "cli/output.h"
#include "course/published.h"
#include "lab/compare/compare.h"
#include "lab/measure/environment.h"
#include "lab/read/file_kind.h"
#include "lab/read/read_page.h"
#include "lab/read/trace_difference.h"

namespace tracestep::cli {
namespace {

struct CompareCommandOptions {
  std::string a, b;
  std::vector<std::string> runs;  // two command lines, or none
  int processes = 12;
  int pairs = 0;
  double margin_percent = 2.0;
  std::optional<double> noise_percent;
  std::optional<double> fail_percent;
  std::vector<std::string> ignored;
  bool published = false;
  OutputOptions output;
};

// Compares published tables with the rows of one or two results.
int run_published(const CompareCommandOptions& o, std::span<const std::string> arguments) {
  ReplayInput ours = read_replay_input(o.a);
  if (!o.b.empty()) {
    ReplayInput more = read_replay_input(o.b);
    ours.rows.insert(ours.rows.end(), more.rows.begin(), more.rows.end());
    if (ours.gpu.empty()) ours.gpu = more.gpu;
  }
  std::vector<Table> tables = replay_published(published_tables(), ours);
  // A file of comma-separated values is one table: the cells.
  if (o.output.format == Format::kCsv) {
    std::erase_if(tables, [](const Table& t) { return t.name != "published_times"; });
  }
  write_tables(o.output, "tracestep.published/1", capture_environment(arguments),
               std::move(tables));
  return 0;
}

// Returns the two sides: files, or results of commands that are run now. nullopt: a signal ended
// the commands. `stop` must have a value if commands are run.
std::optional<RunPair> sides_of(const CompareCommandOptions& o,
                                const std::optional<StopSignal>& stop) {
  if (!o.runs.empty()) {
    if (o.runs.size() != 2 || !o.a.empty()) {
      throw Error(ErrorCode::kUsage, "--run",
                  o.a.empty() ? "one side is missing" : "files are named as well",
                  "give --run twice, A first, and no files");
    }
    if (o.pairs > 0) {
      throw Error(ErrorCode::kUsage, "--pairs", "--run makes the pairs itself",
                  "leave --pairs out");
    }
    return run_in_pairs(o.runs[0], o.runs[1], o.processes, *stop);
  }
  if (o.b.empty()) {
    throw Error(ErrorCode::kUsage, "compare", o.a.empty() ? "A and B are missing" : "B is missing",
                "name two results, or give --run twice, or --published for tables of others");
  }
  std::error_code ignored;
  if (std::filesystem::equivalent(o.a, o.b, ignored)) {
    log_warn("A and B are the same file: a result is compared with itself");
  }
  return RunPair{read_result(o.a), read_result(o.b)};
}

// Compares two recordings of PyTorch, which have steps of their own, as `read` does; refuses
// options that are about results of this program.
int run_recordings(const CompareCommandOptions& o, std::span<const std::string> arguments) {
  if (o.fail_percent || o.noise_percent || o.pairs > 0 || !o.ignored.empty()) {
    throw Error(ErrorCode::kUsage, "compare", "these options are about results of this program",
                "of two recordings only --margin is said");
  }
  write_tables(o.output, kReadSchema, capture_environment(arguments),
               {recorded_difference(o.a, o.b, {.margin = o.margin_percent / 100})});
  return 0;
}

int run_compare(const CompareCommandOptions& o, std::span<const std::string> arguments) {
  const NamedPath inputs[] = {{"A", o.a}, {"B", o.b}}, output[] = {{"--output", o.output.path}};
  check_apart(inputs, output);
  probe_output(o.output);
  if (o.published) {
    if (o.fail_percent) {
      throw Error(ErrorCode::kUsage, "--fail-on-regression",
                  "--published holds no two runs against each other", "leave one out");
    }
    if (o.a.empty()) throw Error(ErrorCode::kUsage, "compare", "A is missing", "name a result");
    return run_published(o, arguments);
  }
  if (is_recording(o.a) && is_recording(o.b)) return run_recordings(o, arguments);
  std::optional<StopSignal> stop;
  if (!o.runs.empty()) stop.emplace("the run under way is ended, and nothing is compared");
  const std::optional<RunPair> sides = sides_of(o, stop);
  if (!sides) return stop->exit_status();
  ComparisonReport report = compare_results(sides->a, sides->b,
                                            {.margin = o.margin_percent / 100,
                                             .ignored = o.ignored,
                                             .noise_percent = o.noise_percent,
                                             .pairs = o.runs.empty() ? o.pairs : o.processes,
                                             .fail_percent = o.fail_percent});
  std::vector<Table> tables{std::move(report.environment)};
  if (!report.rows.rows.empty()) tables.push_back(std::move(report.rows));
  tables.push_back(std::move(report.exact));
  write_tables(o.output, "tracestep.compare/1", capture_environment(arguments), std::move(tables));
  for (const std::string& line : report.regressions) log_warn("regression: {}", line);
  for (const std::string& line : report.undecided) log_warn("cannot be judged: {}", line);
  if (!report.regressions.empty()) return exit_code(ErrorCode::kFailed);
  return report.undecided.empty() ? 0 : exit_code(ErrorCode::kUndecided);
}

}  // namespace

Command compare_command() {
  const auto options = std::make_shared<CompareCommandOptions>();
  Command command{.name = "compare"};
  OptionSet& set = command.options;
  set.positional(
      "A", options->a,
      "a result of bench, attention, memory, profile, precision or study, as JSON or CSV; or a "
      "recording of PyTorch, as read takes it",
      false);
  set.positional("B", options->b, "the one that is held against it", false);
  set.group("What to run");
  set.values(
      "--run", "CMD", 1, 2,
      "instead of files, given twice: a command line for the shell, A first; the two are run in "
      "pairs, the order in each drawn by lot, and compared by the results that they print, or by "
      "the time that they take where they print none",
      [options](const std::string&, const std::string& text) { options->runs.push_back(text); });
  set.integer(
      "--processes", options->processes, {1, 10000},
      "how many times each of them is run; nine pairs are the least that tell a difference, "
      "six processes on each side without pairing");
  set.group("How to compare");
  set.toggle("--published", options->published,
             "hold published tables against the rows of A (and B); a bench result may be CSV");
  set.value("--ignore", "NAME[,NAME]", "columns that may differ in rows that are matched",
            [options](const std::string& where, const std::string& text) {
              options->ignored = split_list(where, text);
            });
  set.real("--margin", options->margin_percent, {0.0, 100.0},
           "percent: what lies within it is the same");
  set.integer("--pairs", options->pairs, {0, 10000},
              "the files hold so many runs of each side that were measured in pairs, in an order "
              "drawn by lot, as --run does it; 0: apart from each other");
  set.value("--process-noise", "X",
            "percent by which medians of processes of one build differ (standard deviation), for "
            "rows of too few processes; else what other rows of the files show",
            [options](const std::string& where, const std::string& text) {
              options->noise_percent = parse_real(where, text, 0.0, 1000.0);
            });
  set.value(
      "--fail-on-regression", "X",
      "a gate: exit with status 1 when a row is slower, beyond noise, by more than X percent, "
      "has more bytes, launches, FLOPs or a larger error by more than that, or is no longer ok; "
      "else with 7 when one cannot be judged (missing in B, invalid, unclear, without samples), "
      "which is then named",
      [options](const std::string& where, const std::string& text) {
        options->fail_percent = parse_real(where, text, 0.0, 1e6);
      });
  add_output_options(set, options->output);
  runs_with(command, options, run_compare);
  return command;
}

}  // namespace tracestep::cli
