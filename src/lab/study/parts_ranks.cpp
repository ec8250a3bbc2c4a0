// The part of the study that divides a step among ranks, where it was asked for.
#include <algorithm>

#include "lab/report/columns.h"
#include "lab/study/study.h"
#include "spec/fields.h"

namespace tracestep {
namespace {

// The forms in which N ranks can share a step, each saving or hiding more than the one before; then
// the form that was asked for, where it is none of them.
std::vector<Parallel> forms_of(const Parallel& asked) {
  const Parallel plain{
      .ranks = asked.ranks, .tensor = asked.tensor, .divides_rows = asked.divides_rows};
  std::vector<Parallel> out(6, plain);
  out[0].bucket_bytes = Parallel::kEachTensor;
  out[0].overlap = Overlap::kOff;
  out[1].bucket_bytes = Parallel::kAllTensors;
  out[1].overlap = Overlap::kOff;
  for (int shard : {1, 2, 3}) out[static_cast<std::size_t>(2 + shard)].shard = shard;
  if (std::ranges::find(out, asked) == out.end()) out.push_back(asked);
  return out;
}

// One rank alone on the whole batch, then every form.
std::vector<RunSpec> runs_of(const StudyContext& context, const ModelConfig& model,
                             BatchShape shape) {
  const Parallel& asked = context.sizes.parallel;
  const std::int64_t replicas = asked.replicas();
  shape.batch = (shape.batch + replicas - 1) / replicas * replicas;
  const RunSpec alone = context.here({.model = model, .shape = shape, .mode = Mode::kStep});
  std::vector<RunSpec> out{alone};
  for (const Parallel& form : forms_of(asked)) {
    RunSpec run = alone;
    run.parallel = form;
    run.place.threads = std::max(1, alone.place.threads / asked.ranks);
    out.push_back(run);
  }
  return out;
}

// The peak of one rank, predicted.
Table plan_table(StudyContext& context) {
  Table table{.name = "planned_ranks",
              .title = fmt::format("{}: peak of each rank, predicted", context.sizes.planned.name)};
  table.columns = {
      text_column("size"),
      int_column("context"),
      int_column("batch", {}, "of all ranks together"),
      text_column("parallel", "", "how ranks share the step; none: one rank alone"),
      bytes_column("predicted_peak_bytes", "peak", "of one rank, from its program"),
      real_column("of_one", "of one rank's", {}, 3, "over that of one rank with the whole batch"),
      {.name = "fits", .kind = ColumnKind::kBool, .description = "into this device's memory"},
      data_only(structured_column("cell", "all parameters of the row"))};
  const std::int64_t room = context.machine.memory_bytes;
  const BatchShape shape{.batch = context.sizes.shape.batch,
                         .context = context.sizes.planned_contexts.back()};
  double alone = 0;
  if (!context.has_time_for(0)) return table;
  for (const RunSpec& run : runs_of(context, context.sizes.planned, shape)) {
    const std::int64_t peak = predict_memory(run, context.machine.traits).predicted_peak_bytes;
    if (!run.parallel.is_on()) alone = static_cast<double>(peak);
    table.add_cells({{"size", run.model.name},
                     {"context", run.shape.context},
                     {"batch", run.shape.batch},
                     {"parallel", name_of(run.parallel)},
                     {"predicted_peak_bytes", peak},
                     {"of_one", when(alone > 0, static_cast<double>(peak) / alone)},
                     {"fits", when(room > 0, peak <= room)},
                     {"cell", key_of(run)}});
  }
  return table;
}

}  // namespace

WantedSteps shared_steps(const StudyContext& context) {
  return {.runs = runs_of(context, context.sizes.models.front(), context.sizes.shape),
          .recorded_steps = 1};
}

void rank_part(StudyContext& context) {
  context.announce("one step, shared by ranks in every form");
  StudySection out{.id = "ranks",
                   .title = "One step on many ranks",
                   .reading =
                       "The same step on the same batch, by one rank and shared by "
                       "several: whole gradients summed one by one, all at once, and beside "
                       "backward; then states, gradients and weights in parts."};
  Table planned = plan_table(context);
  if (context.machine.runs_ranks) {
    measure_shared_steps(context);
    Table measured = cell_table(context.measured(shared_steps(context).runs));
    measured.name = "ranks";
    measured.title = "Every form, measured: time, collectives, and the first rank's peak";
    out.reading +=
        " Ranks are threads of this process and share its cores, so what they show here is bytes "
        "and what collectives cost, not a gain in time.";
    if (!measured.rows.empty()) out.tables.push_back(std::move(measured));
  } else {
    out.reading +=
        " Each rank needs a device of its own, and a process: the command launch starts them, and "
        "bench "
        "times their steps. Here are their bytes.";
  }
  if (!planned.rows.empty()) out.tables.push_back(std::move(planned));
  if (!out.tables.empty()) context.sections.push_back(std::move(out));
}

}  // namespace tracestep
