// tracestep read: answers questions about a recording of PyTorch as for our own results, and
// compares the two.
#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>

#include "base/error.h"
#include "base/log.h"
#include "base/output_file.h"
#include "cli/command.h"
#include "cli/devices.h"
#include "cli/options.h"
#include "cli/output.h"
#include "lab/measure/environment.h"
#include "lab/predict/time_source.h"
#include "lab/read/beside.h"
#include "lab/read/file_kind.h"
#include "lab/read/read_page.h"
#include "lab/read/trace_difference.h"
#include "spec/planned.h"

namespace tracestep::cli {
namespace {

struct ReadOptions {
  std::string a, b;
  std::filesystem::path eager;
  bool host_ops = false;
  double margin_percent = 2.0;
  OutputOptions output;
  RunGrid grid;
  TimeOptions times;

  bool has_model() const {
    return grid.is_given("model") || grid.is_given("size") || grid.is_custom();
  }
};

// This program's step of the given model, on the recording's device if no other is named.
class Ours {
 public:
  Ours(const ReadOptions& o, std::span<const std::string> arguments, bool is_of_gpu,
       const std::string& gpu)
      : times_(o.times) {
    if (times_.published.empty() && known_device(gpu) != nullptr) times_.published = gpu;
    RunGrid grid = on_timed_device(o.grid, times_);
    if (is_of_gpu && !grid.is_given("device")) grid.offer("device", {"cuda"});
    const auto assumed = assume_planned(grid, times_);
    run_ = run_of(grid, Takes::kFast, DeviceUse::kPlan);
    environment = environment_of(arguments, run_);
    say_assumed(assumed, {&run_, 1}, environment, notes);
  }

  OurStep step() const { return our_step(run_, traits_of(run_.place)); }
  OurStep timed_step() {
    TimeSource source = time_source(run_, times_, environment);
    notes.push_back(source.note);
    if (!source.model) {
      throw Error(ErrorCode::kUsage, "read", "how long our program takes there is not known",
                  source.note);
    }
    OurStep out = step();
    out.time = predict_program(run_, out.memory.program, traits_of(run_.place), source.predictor());
    return out;
  }

  Json environment;
  std::vector<std::string> notes;

 private:
  TimeOptions times_;
  RunSpec run_;
};

std::vector<Table> tables_of_traces(const std::vector<ReadTrace>& traces, const ReadOptions& o) {
  if (std::vector<Table> ranks = rank_tables(traces); !ranks.empty()) return ranks;
  if (traces.size() > 1) {
    throw Error(
        ErrorCode::kInput, traces.front().facts.path.parent_path().filename(),
        "its recordings are not of several ranks: their distributedInfo names no different ones",
        "two recordings are compared where both are named");
  }
  std::vector<Table> out = trace_tables(traces.front());
  if (o.host_ops) out.push_back(op_table(traces.front()));
  return out;
}

// Puts the tables of our step before the file's own.
void add_ours(std::vector<Table> ours, const std::vector<std::string>& notes,
              std::vector<Table>& tables) {
  for (const std::string& note : notes) ours.front().notes.push_back(note);
  tables.insert(tables.begin(), ours.begin(), ours.end());
}

// Names the files without their folders: "before.json.gz and after.json.gz".
std::string title_of(const ReadOptions& o) {
  const auto name = [](const std::filesystem::path& path) {
    return (path.has_filename() ? path : path.parent_path()).filename().string();
  };
  return name(o.a) + (o.b.empty() ? "" : " and " + name(o.b));
}

// The table of all work of the step nearest to the median, which a page alone shows. Reads the
// trace again, as the first reading does not know that step.
Table drawn_step(const ReadTrace& trace, const ReadTrace* eager) {
  return step_table(read_trace_of_file(trace.facts.path, eager, trace.times.middle_step()));
}

int run_read(const ReadOptions& o, std::span<const std::string> arguments) {
  const NamedPath inputs[] = {{"A", o.a}, {"B", o.b}, {"--eager", o.eager}},
                  output[] = {{"--output", o.output.path}};
  check_apart(inputs, output);
  if (o.has_model() && !o.b.empty()) {
    throw Error(ErrorCode::kUsage, "read", "two recordings and a model are three sides",
                "give B or the model");
  }
  probe_output(o.output);
  std::optional<ReadTrace> eager;  // names kernels of graphs' replays
  if (!o.eager.empty()) eager = read_trace_of_file(o.eager);
  const ReadTrace* const names = eager ? &*eager : nullptr;
  const std::vector<std::filesystem::path> files = recorded_files(o.a);
  Json environment = capture_environment(arguments);
  std::vector<Table> tables;
  if (!o.b.empty()) {
    tables.push_back(
        recorded_difference(files.front(), o.b, {.margin = o.margin_percent / 100}, names));
  } else if (recorded_kind(files.front()) == RecordedKind::kSnapshot) {
    const SnapshotFacts facts = read_snapshot_facts(files.front());
    tables = snapshot_tables(facts);
    if (is_page(o.output)) tables.push_back(snapshot_stack(facts));
    if (o.has_model()) {
      Ours ours(o, arguments, true, "");
      add_ours({beside_table(facts, ours.step())}, ours.notes, tables);
      environment = ours.environment;
    }
  } else {
    std::vector<ReadTrace> traces;
    for (const auto& file : files) traces.push_back(read_trace_of_file(file, names));
    tables = tables_of_traces(traces, o);
    if (is_page(o.output) && traces.size() == 1) tables.push_back(drawn_step(traces[0], names));
    if (o.has_model() && traces.size() == 1) {
      const ReadTrace& trace = traces.front();
      Ours ours(o, arguments, trace.facts.is_of_device(), trace.gpu());
      add_ours(beside_tables(trace, ours.timed_step()), ours.notes, tables);
      environment = ours.environment;
    }
  }
  if (is_page(o.output)) {
    write_file(o.output.path, read_page(title_of(o), std::move(tables), environment));
    log_info("the page is in {}", o.output.path.string());
    return 0;
  }
  write_tables(o.output, kReadSchema, environment, std::move(tables));
  return 0;
}

}  // namespace

Command read_command() {
  const auto options = std::make_shared<ReadOptions>();
  Command command{.name = "read"};
  OptionSet& set = command.options;
  set.positional("A", options->a,
                 "a trace of torch.profiler (.json or .json.gz), a memory snapshot (.pickle), or a "
                 "folder of traces, one of each rank");
  set.positional("B", options->b, "another of the same kind, that is held against it", false);
  set.group("What to show");
  set.path("--eager", "FILE", options->eager,
           "a trace of the same program without CUDA graphs: by the order of its kernels those of "
           "replays get their op and module");
  set.toggle("--host-ops", options->host_ops,
             "also the ops of the host, as key_averages() of PyTorch adds them up");
  set.real("--margin", options->margin_percent, {0.0, 100.0},
           "percent: what differs by less between A and B is the same");
  set.group("Our program of the model beside it, predicted");
  add_time_options(set, options->times);
  add_run_fields(set, options->grid, Values::kOne, "cpu; cuda[:N]");
  add_output_options(set, options->output);
  options->output.own_endings = {std::string(kPageEnding)};
  runs_with(command, options, run_read);
  return command;
}

}  // namespace tracestep::cli
