// tracestep compare: two results beside each other, row by row, with what chance explains.
#include <memory>

#include "base/error.h"
#include "base/log.h"
#include "cli/command.h"
#include "cli/output.h"
#include "lab/compare/compare.h"
#include "lab/measure/environment.h"
#include "lab/published/published.h"

namespace tracestep::cli {
namespace {

struct CompareCommandOptions {
  std::string a, b;
  double margin_percent = 2.0;
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
  if (o.output.format == Format::kCsv) tables = {tables[1]};
  write_tables(o.output, "tracestep.published/1", capture_environment(arguments),
               std::move(tables));
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
    return run_published(o, arguments);
  }
  if (o.b.empty()) {
    throw Error(ErrorCode::kUsage, "compare", "B is missing",
                "name a second result, or give --published for tables of others");
  }
  const ResultFile a = read_result(o.a), b = read_result(o.b);
  ComparisonReport report = compare_results(
      a, b,
      {.margin = o.margin_percent / 100, .ignored = o.ignored, .fail_percent = o.fail_percent});
  write_tables(o.output, "tracestep.compare/1", capture_environment(arguments),
               {std::move(report.environment), std::move(report.rows)});
  for (const std::string& line : report.regressions) log_warn("regression: {}", line);
  for (const std::string& line : report.undecided) log_warn("cannot be judged: {}", line);
  if (!report.regressions.empty()) return exit_code(ErrorCode::kFailed);
  return report.undecided.empty() ? 0 : exit_code(ErrorCode::kUndecided);
}

}  // namespace

Command compare_command() {
  const auto options = std::make_shared<CompareCommandOptions>();
  Command command{
      .name = "compare",
      .summary = "is this run faster than that one, or is it noise",
      .details =
          "Matches the rows of two JSON results of bench or attention by what they measured, says "
          "first what differs between the machines and builds, then for each pair the ratio of the "
          "medians with its 95 % interval, and whether B is the same, faster, slower, or cannot be "
          "told. With --published the rows are held against five published write-ups instead: "
          "which "
          "of their cells agree, which are explained by what their own data show, and which are "
          "suspicious.",
      .examples = {
          {"before.json after.json", "what a change did"},
          {"main.json branch.json --fail-on-regression 3",
           "exit status 1 when a row is over 3 % slower, beyond noise; 7 when that cannot be told"},
          {"fp32.json bf16.json --ignore precision", "what bfloat16 brings"},
          {"bench.json attention.json --published --format markdown",
           "published tables beside two results of this machine"}}};
  OptionSet& set = command.options;
  set.positional("A", options->a, "a JSON result (bench or attention, --format json)");
  set.positional("B", options->b, "the one that is held against it", false);
  set.group("How to compare");
  set.toggle("--published", options->published,
             "hold published tables against the rows of A (and B); a bench result may be CSV");
  set.value("--ignore", "NAME[,NAME]", "columns that may differ in rows that are matched",
            [options](const std::string& where, const std::string& text) {
              options->ignored = split_list(where, text);
            });
  set.real("--margin", options->margin_percent, {0.0, 100.0},
           "percent: what lies within it is the same");
  set.value(
      "--fail-on-regression", "X",
      "a gate: exit with status 1 when a row is slower, beyond noise, by more than X percent, "
      "or is no longer ok; else with 7 when one cannot be judged (missing in B, invalid, "
      "unclear, without samples), which is then named",
      [options](const std::string& where, const std::string& text) {
        options->fail_percent = parse_real(where, text, 0.0, 1e6);
      });
  add_output_options(set, options->output);
  command.run = [options](std::span<const std::string> arguments) {
    return run_compare(*options, arguments);
  };
  return command;
}

}  // namespace tracestep::cli
