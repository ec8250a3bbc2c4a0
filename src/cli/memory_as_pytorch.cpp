#include "cli/memory_as_pytorch.h"

#include "base/error.h"
#include "base/output_file.h"
#include "captured/captured_model.h"
#include "cli/command.h"
#include "cli/devices.h"
#include "cli/output.h"
#include "lab/measure/environment.h"
#include "lab/memory/run.h"
#include "lab/snapshots/snapshot.h"
#include "run/memory_limit.h"
#include "spec/planned.h"

namespace tracestep::cli {
namespace {

constexpr std::int64_t kMebibyte = std::int64_t{1} << 20;

void write_snapshots(const AsPytorch& asked, const PytorchQuestion& question) {
  if (asked.snapshot.empty() && asked.snapshot_json.empty()) return;
  const MemorySnapshot snapshot = pytorch_snapshot(question);
  if (!asked.snapshot.empty()) write_file(asked.snapshot, pickle_of(snapshot));
  if (!asked.snapshot_json.empty()) write_file(asked.snapshot_json, json_of(snapshot));
}

}  // namespace

void add_pytorch_options(OptionSet& set, PytorchOptions& options) {
  set.text("--alloc-conf", "TEXT", options.alloc_conf,
           "settings of its allocator as in PYTORCH_CUDA_ALLOC_CONF, such as "
           "expandable_segments:True");
  set.integer(
      "--outside-mib", options.outside_mib, {0, 1 << 20},
      "MiB of the card beside the allocator: the context, kernels, libraries' handles; 0: as "
      "measured on an H200");
  set.integer("--workspace-mib", options.workspace_mib, {1, 1 << 16},
              "MiB of a workspace of cuBLAS; a step has two, one of backward's thread");
  set.toggle("--fused-optimizer", options.is_fused,
             "of an estimated step: its optimizer is fused, not foreach");
}

PytorchQuestion pytorch_question(const RunSpec& run, std::int64_t limit_bytes,
                                 const PytorchOptions& options, std::int64_t ours_bytes) {
  PytorchQuestion out{
      .list = {},
      .settings = parse_allocator_settings("--alloc-conf", options.alloc_conf),
      .settings_text = options.alloc_conf,
      .card = {.usable_bytes = limit_bytes, .workspace_bytes = kMebibyte * options.workspace_mib},
      .ours_bytes = ours_bytes};
  const auto& captured = run.model.captured;
  if (captured != nullptr && std::filesystem::exists(captured->folder / kRecordedStep)) {
    out.list = read_recorded_step(captured->folder / kRecordedStep);
  } else {
    if (run.optimizer.kind == OptimizerKind::kMuon && run.mode == Mode::kStep) {
      throw Error(ErrorCode::kUsage, "optimizer"_field,
                  "muon: a step of PyTorch is estimated with AdamW alone",
                  "give optimizer adamw, or a module captured with its own step");
    }
    RunSpec eager = run;
    eager.executor = ExecutorKind::kEager;
    out.list = estimated_step(predict_memory(eager, traits_of(eager.place)), options.is_fused,
                              captured != nullptr);
  }
  out.card.outside_bytes =
      options.outside_mib > 0 ? kMebibyte * options.outside_mib : outside_bytes_of(out.list);
  return out;
}

int run_as_pytorch(const AsPytorch& asked, std::span<const std::string> arguments) {
  RunGrid grid = on_timed_device(asked.grid, asked.times);
  if (!grid.is_given("device")) grid.offer("device", {"cuda"});
  const auto assumed = assume_planned(grid, asked.times);
  const RunSpec run = run_of(grid, Takes::kPlanner, DeviceUse::kPlan, Ranks::kUsed);
  Json environment = environment_of(arguments, run);
  const TimeSource source = time_source(run, asked.times, environment);
  const std::int64_t given = limit_in_bytes(run.place);
  const std::int64_t ours = predict_memory(run, traits_of(run.place)).predicted_peak_bytes;
  const PytorchQuestion question =
      pytorch_question(run, given > 0 ? given : source.usable_bytes, asked.pytorch, ours);
  std::vector<Table> tables{pytorch_table(question), pytorch_ways_table(question)};
  for (Table& table : pytorch_detail_tables(question)) tables.push_back(std::move(table));
  say_assumed(assumed, {&run, 1}, environment, tables[0].notes);
  write_snapshots(asked, question);
  write_tables(asked.output, "tracestep.memory/2", environment, std::move(tables));
  return 0;
}

}  // namespace tracestep::cli
