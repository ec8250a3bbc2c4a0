// tracestep read: a recording of PyTorch, answered like our own results.
#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>

#include "base/error.h"
#include "cli/command.h"
#include "cli/output.h"
#include "lab/measure/environment.h"
#include "lab/read/file_kind.h"
#include "lab/read/snapshot_file.h"
#include "lab/read/trace_difference.h"

namespace tracestep::cli {
namespace {

struct ReadOptions {
  std::string a, b;
  std::filesystem::path eager;
  bool ops = false;
  double margin_percent = 2.0;
  OutputOptions output;
};

// A trace, with names for the kernels of its graphs' replays where another file has them.
class TraceFiles {
 public:
  explicit TraceFiles(const ReadOptions& o) {
    if (!o.eager.empty()) eager_ = read_trace_of_file(o.eager);
  }
  ReadTrace operator()(const std::filesystem::path& path) const {
    return read_trace_of_file(path, eager_ ? &*eager_ : nullptr);
  }

 private:
  std::optional<ReadTrace> eager_;
};

std::vector<Table> tables_of_traces(const std::vector<std::filesystem::path>& files,
                                    const ReadOptions& o) {
  const TraceFiles read(o);
  std::vector<ReadTrace> traces;
  for (const auto& file : files) traces.push_back(read(file));
  if (std::vector<Table> ranks = rank_tables(traces); !ranks.empty()) return ranks;
  if (traces.size() > 1) {
    throw Error(
        ErrorCode::kInput, files.front().parent_path().filename().string(),
        "its recordings are not of several ranks: their distributedInfo names no different ones",
        "two recordings are compared where both are named");
  }
  std::vector<Table> out = trace_tables(traces.front());
  if (o.ops) out.push_back(op_table(traces.front()));
  return out;
}

std::vector<Table> tables_of_two(const ReadOptions& o, RecordedKind kind) {
  if (kind == RecordedKind::kSnapshot) {
    const SnapshotFacts a = read_snapshot_facts(o.a), b = read_snapshot_facts(o.b);
    return {snapshot_difference(a, b)};
  }
  const TraceFiles read(o);
  const ReadTrace a = read(o.a), b = read(o.b);
  return {difference_table(a, b, {.margin = o.margin_percent / 100})};
}

int run_read(const ReadOptions& o, std::span<const std::string> arguments) {
  const NamedPath inputs[] = {{"A", o.a}, {"B", o.b}, {"--eager", o.eager}},
                  output[] = {{"--output", o.output.path}};
  check_apart(inputs, output);
  probe_output(o.output);
  const std::vector<std::filesystem::path> files = recorded_files(o.a);
  const RecordedKind kind = recorded_kind(files.front());
  std::vector<Table> tables;
  if (!o.b.empty()) {
    if (recorded_kind(o.b) != kind) {
      throw Error(ErrorCode::kInput, "B", "A and B are recordings of two kinds",
                  "two traces or two snapshots are compared");
    }
    tables = tables_of_two(o, kind);
  } else if (kind == RecordedKind::kSnapshot) {
    tables = snapshot_tables(read_snapshot_facts(files.front()));
  } else {
    tables = tables_of_traces(files, o);
  }
  write_tables(o.output, "tracestep.read/1", capture_environment(arguments), std::move(tables));
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
  set.toggle("--ops", options->ops,
             "also the ops of the host, as key_averages() of PyTorch adds them up");
  set.real("--margin", options->margin_percent, {0.0, 100.0},
           "percent: what differs by less between A and B is the same");
  add_output_options(set, options->output);
  runs_with(command, options, run_read);
  return command;
}

}  // namespace tracestep::cli
