// tracestep explain: a topic of the study with its formulas, worked numbers and traps.
#include <algorithm>
#include <memory>

#include <fmt/ranges.h>

#include "base/error.h"
#include "cli/command.h"
#include "cli/devices.h"
#include "cli/output.h"
#include "course/claims.h"
#include "course/published.h"
#include "lab/explain/explain.h"
#include "lab/measure/environment.h"
#include "lab/predict/devices.h"
#include "lab/time/cell.h"
#include "nn/captured_programs.h"
#include "ops/functions.h"
#include "spec/check_run.h"

namespace tracestep::cli {
namespace {

struct ExplainOptions {
  std::string topic;  // with `claims`: words to look for
  bool claims = false;
  std::string from;
  std::string published;
  RanksInput ranks;
  RunGrid grid{{.model = preset("small"), .shape = {.batch = 4, .context = 512}}};
  OutputOptions output;
};

[[noreturn]] void fail_without_samples(const std::string& file) {
  throw Error(ErrorCode::kInput, file, "no row of these sizes ran and has samples",
              "name a result of bench or study, and sizes that are in it");
}

bool has_samples(const ResultRow& row) {
  return row.status() == "ok" && !row.samples_ms().empty();
}

// The first row of the file with the requested sizes, if possible one that ran: a step that ran out
// of memory also has sizes.
ResultRow row_of(const ExplainOptions& o) {
  const ReplayInput file = read_replay_input(o.from);
  const RunSpec asked = o.grid.run();
  const auto differs = [&](const char* field, auto value, auto found) {
    return o.grid.is_given(field) && found != value;
  };
  const ResultRow* not_run = nullptr;
  for (const ResultRow& row : file.rows) {
    if (differs("size", asked.model.name, row.size())) continue;
    if (differs("context", asked.shape.context, row.context())) continue;
    if (differs("batch", asked.shape.batch, row.batch())) continue;
    if (has_samples(row)) return row;
    if (not_run == nullptr && row.status() == "oom") not_run = &row;
  }
  if (not_run == nullptr) fail_without_samples(o.from);
  return *not_run;
}

// Reports that a file was named without a topic to explain by it.
[[noreturn]] void fail_without_topic(const ExplainOptions& o) {
  const bool has_times = has_samples(row_of(o));
  std::vector<std::string_view> names;
  for (const Topic& topic : topics()) {
    if (has_times ? topic.reads_row : topic.name == "oom") names.push_back(topic.name);
  }
  throw Error(ErrorCode::kUsage, "explain", "a topic is missing",
              fmt::format("{} has numbers for {}; the other topics take its sizes", o.from,
                          fmt::join(names, ", ")));
}

// Measures a small step on one core of this machine, well under a second, for want of a file.
ResultRow measured_row() {
  const CellSpec spec{.step = {.model = preset("tiny"),
                               .shape = {1, 32},
                               .mode = Mode::kForwardBackward,
                               .place = {.threads = 1}},
                      .protocol = {.warmup = 3, .steps = 9}};
  const CellResult result = visit(make_device, spec, nullptr);
  return ResultRow::of(cell_columns(), cell_row(result), Json::object());
}

// Returns the model that was measured: by the row's parameters, else the preset that the row names.
ModelConfig model_of_row(const ResultRow& row) {
  if (const Json* parameters = row.parameters()) return run_of_key(*parameters).model;
  const ModelConfig* known = find_model(row.size());
  ModelConfig out = known != nullptr ? *known : preset("small");
  if (const auto vocab = row.vocab()) out.vocab = static_cast<std::int64_t>(*vocab);
  return out;
}

// Returns the input of topics. `row`: of the file; nullopt: topics that need one measure a step.
ExplainInput input_of(const ExplainOptions& o, const std::optional<ResultRow>& row) {
  RunSpec run = o.grid.run();
  refuse_captured(run.model, "topics are explained by the reference Transformer");
  const auto take = [&](const char* field, std::int64_t& out) {
    const auto value = row->number(field);
    if (!o.grid.is_given(field) && value) out = static_cast<std::int64_t>(*value);
  };
  ExplainInput input{.row = measured_row, .is_measured_now = !row};
  if (row) {
    if (!o.grid.is_given("size") && !o.grid.is_custom() && !o.grid.is_given("vocab")) {
      run.model = model_of_row(*row);
    }
    take("batch", run.shape.batch);
    take("context", run.shape.context);
    input.row = [found = *row, file = o.from] {
      if (!has_samples(found)) fail_without_samples(file);
      return found;
    };
  }
  check_run(run);
  input.ranks = o.ranks;
  input.model = run.model;
  input.shape = run.shape;
  return input;
}

// The table of the claims that are found, and the derivation of each unless all were asked for.
std::vector<Table> claim_tables(const std::string& words) {
  ops::register_all();
  const std::vector<const Claim*> found = find_claims(words);
  if (found.empty()) {
    throw Error(ErrorCode::kUsage, "--claims", fmt::format("no claim has \"{}\"", words),
                "without words it lists all; a row (X12), a topic (softmax) or words find some");
  }
  std::vector<Table> out = {claim_table(found)};
  if (words.empty()) return out;
  for (const Claim* claim : found) out.push_back(derivation(*claim));
  return out;
}

// Refuses options about ranks where the topic does not read them.
void check_ranks(const ExplainOptions& o, const Topic& topic) {
  const RanksInput none;
  const bool is_asked = o.ranks.ranks != none.ranks || o.ranks.tflops > 0 ||
                        o.ranks.link_gb_s > 0 || o.ranks.between_gb_s > 0 || !o.published.empty();
  if (!is_asked || topic.reads_ranks) return;
  std::vector<std::string_view> names;
  for (const Topic& other : topics()) {
    if (other.reads_ranks) names.push_back(other.name);
  }
  fail_usage("explain", "{} is not about ranks; {} are", topic.name, fmt::join(names, " and "));
}

int run_explain(ExplainOptions o, std::span<const std::string> arguments) {
  if (!o.published.empty()) {
    o.ranks.device = require_device("--published", o.published).devices.front();
  }
  const NamedPath input[] = {{"--from", o.from}}, output[] = {{"--output", o.output.path}};
  check_apart(input, output);
  probe_output(o.output);
  std::vector<Table> tables;
  if (o.claims) {
    tables = claim_tables(o.topic);
  } else if (o.topic.empty()) {
    if (!o.from.empty()) fail_without_topic(o);
    tables = {topic_table()};
  } else {
    const Topic& topic = topic_named(o.topic);
    check_ranks(o, topic);
    ops::register_all();
    std::optional<ResultRow> row;
    if (!o.from.empty()) row = row_of(o);
    tables = explain(topic, input_of(o, row));
    const std::string note = claims_note(topic.name);
    if (!note.empty()) tables.front().notes.push_back(note);
  }
  // A file of comma-separated values is one table.
  if (o.output.format == Format::kCsv) tables.resize(1);
  write_tables(o.output, "tracestep.explain/1", capture_environment(arguments), std::move(tables));
  return 0;
}

}  // namespace

Command explain_command() {
  const auto options = std::make_shared<ExplainOptions>();
  Command command{.name = "explain"};
  OptionSet& set = command.options;
  set.positional("TOPIC", options->topic,
                 "what to explain, or with --claims the words to look for; without it, the list",
                 false);
  set.toggle("--claims", options->claims,
             "published claims that do not hold, by row, topic or words");
  set.group("Whose numbers");
  set.text("--from", "FILE", options->from,
           "a result of bench or study, JSON or CSV; its first row that fits");
  add_field(set, options->grid, "batch", Values::kOne, "sequences, B; the row's with --from");
  add_field(set, options->grid, "context", Values::kOne,
            "tokens of each, T; the row's with --from");
  add_fields(set, options->grid, FieldGroup::kModel, Values::kOne);
  set.group("Many ranks");
  set.integer("--ranks", options->ranks.ranks, {.min = 1, .max = 1 << 20},
              "ranks that the batch is divided among, N");
  set.text("--published", "NAME", options->published,
           "whose peak and link are taken, of those that show --devices lists (H200)");
  set.real("--tflops", options->ranks.tflops, {.min = 0.0},
           "TFLOP/s of each rank's products instead, R: doctor --ceilings measures them");
  set.real("--link-gb-s", options->ranks.link_gb_s, {.min = 0.0},
           "GB/s that each rank gets from the others instead, W: the bus bandwidth of comm");
  set.real("--between-gb-s", options->ranks.between_gb_s, {.min = 0.0},
           "the same between hosts of 8 ranks (a link of 400 Gb/s: 50); without it as inside one");
  add_output_options(set, options->output);
  runs_with(command, options, run_explain);
  return command;
}

}  // namespace tracestep::cli
