// The part of the study that divides a step among ranks.
#include <algorithm>
#include <array>
#include <functional>
#include <memory>

#include <fmt/format.h>

#include "base/error.h"
#include "lab/comm/collectives.h"
#include "lab/report/columns.h"
#include "lab/study/study.h"
#include "session/devices.h"
#include "spec/fields.h"
#include "spec/parse_words.h"

namespace tracestep {
namespace {

// A way to share a step among ranks, with its name for readers.
struct Form {
  std::string name;
  Parallel parallel;
};

// Returns ways to share a step among ranks, from sums of each gradient after backward to all stages
// of ZeRO; then the way that was asked for, if it is none of these.
std::vector<Form> forms_of(const Parallel& asked, std::int64_t gradient_bytes) {
  const Parallel plain{
      .ranks = asked.ranks, .tensor = asked.tensor, .divides_rows = asked.divides_rows};
  std::vector<Form> out;
  const auto add = [&](std::string name, auto change) {
    out.push_back({std::move(name), plain});
    change(out.back().parallel);
  };
  add("each gradient", [](Parallel& p) {
    p.bucket_bytes = Parallel::kEachTensor;
    p.overlap = Overlap::kOff;
  });
  add("all gradients at once", [](Parallel& p) {
    p.bucket_bytes = Parallel::kAllTensors;
    p.overlap = Overlap::kOff;
  });
  add("beside backward, each gradient",
      [](Parallel& p) { p.bucket_bytes = Parallel::kEachTensor; });
  for (const auto& [count, name] : {std::pair{16, "sixteen"}, {4, "four"}}) {
    add(fmt::format("beside backward, {} buckets", name),
        [gradient_bytes, count = count](Parallel& p) {
          p.bucket_bytes = (gradient_bytes / count + 1023) / 1024 * 1024;  // written in KiB
        });
  }
  add("beside backward, buckets by the model", [](Parallel&) {});
  add("states in parts", [](Parallel& p) { p.shard = 1; });
  add("gradients in parts too", [](Parallel& p) { p.shard = 2; });
  add("weights in parts too", [](Parallel& p) { p.shard = 3; });
  if (std::ranges::find(out, asked, &Form::parallel) == out.end()) {
    out.push_back({"as asked for", asked});
  }
  return out;
}

struct FormOfRun {
  std::string form;
  RunSpec run;
};

// The runs of a step: one rank alone on the whole batch, then every form of sharing.
std::vector<FormOfRun> runs_of(const StudyContext& context, const ModelConfig& model,
                               BatchShape shape) {
  const Parallel& asked = context.sizes.parallel;
  const std::int64_t replicas = asked.replicas();
  shape.batch = (shape.batch + replicas - 1) / replicas * replicas;
  const RunSpec alone = context.here({.model = model, .shape = shape, .mode = Mode::kStep});
  std::vector<FormOfRun> out{{"one rank", alone}};
  for (const Form& form : forms_of(asked, 4 * parameter_formula(model))) {
    RunSpec run = alone;
    run.parallel = form.parallel;
    run.place.threads = std::max(1, alone.place.threads / asked.ranks);
    out.push_back({form.name, run});
  }
  return out;
}

// Returns a table of the predicted peak of one rank, for each way to share the planned step.
Table plan_table(const StudyContext& context) {
  Table table{.name = "planned_ranks",
              .title = fmt::format("{}: peak of each rank, predicted", context.sizes.planned.name)};
  table.columns = {
      as_key(text_column("size")),
      as_key(int_column("context")),
      as_key(int_column("batch", {}, "of all ranks together")),
      as_key(text_column("ops")),
      as_key(text_column("precision")),
      as_key(text_column("form", "", "how ranks share the step")),
      as_key(text_column("parallel", "", "the same as an option; none: one rank alone")),
      bytes_column("predicted_peak_bytes", "peak", "of one rank, from its program"),
      real_column("of_one", "of one rank's", {}, 3, "over that of one rank with the whole batch"),
      {.name = "fits", .kind = ColumnKind::kBool, .description = "into this device's memory"},
      data_only(structured_column("cell", "all parameters of the row"))};
  const std::int64_t room = context.machine.memory_bytes;
  const BatchShape shape{.batch = context.sizes.shape.batch,
                         .context = context.sizes.planned_contexts.back()};
  double alone = 0;
  const std::vector<FormOfRun> forms = runs_of(context, context.sizes.planned, shape);
  std::vector<RunSpec> runs;
  for (const FormOfRun& each : forms) runs.push_back(each.run);
  std::vector<std::int64_t> peaks(runs.size());
  predict_each(context, runs,
               [&](std::size_t i, MemoryRun run) { peaks[i] = run.predicted_peak_bytes; });
  for (std::size_t i = 0; i < forms.size(); ++i) {
    const auto& [form, run] = forms[i];
    const std::int64_t peak = peaks[i];
    if (!run.parallel.is_on()) alone = static_cast<double>(peak);
    table.add_cells({{"size", run.model.name},
                     {"context", run.shape.context},
                     {"batch", run.shape.batch},
                     {"ops", name_of(run.ops)},
                     {"precision", name_of(run.precision)},
                     {"form", form},
                     {"parallel", name_of(run.parallel)},
                     {"predicted_peak_bytes", peak},
                     {"of_one", when(alone > 0, static_cast<double>(peak) / alone)},
                     {"fits", when(room > 0, peak <= room)},
                     {"cell", key_of(run)}});
  }
  return table;
}

// Returns a table with a row for each form that was measured: its name and its cell's results.
Table form_table(const StudyContext& context) {
  const std::vector<FormOfRun> forms =
      runs_of(context, context.sizes.models.front(), context.sizes.shape);
  std::vector<RunSpec> runs;
  std::vector<Json> names;
  for (const auto& [form, run] : forms) {
    if (result_of(CellSpec{run, {}}, context.steps) == nullptr) continue;
    runs.push_back(run);
    names.emplace_back(form);
  }
  Table out = cell_table(context.measured(runs), "ranks",
                         "Every form, measured: time, collectives, and the first rank's peak");
  out.columns.insert(out.columns.begin(), {text_column("form", "", "how ranks share the step"),
                                           data_only(int_column("ranks"))});
  for (std::size_t i = 0; i < out.rows.size(); ++i) {
    out.rows[i].insert(out.rows[i].begin(), {names[i], runs[i].parallel.ranks});
  }
  return out;
}

// Measures sums over the ranks without a step, by size; the second size shows whether time grows.
Table sum_table(StudyContext& context) {
  constexpr std::array kKibibytes{16, 4096, 256, 32768};
  const RunSpec run = runs_of(context, context.sizes.models.front(), context.sizes.shape)[1].run;
  std::vector<CollectiveSpec> specs;
  for (const int kibibytes : kKibibytes) {
    constexpr double kSeconds = 0.2;  // of each
    if (!context.has_time_for(kSeconds * static_cast<double>(specs.size() + 1))) break;
    specs.push_back({.ranks = run.parallel.ranks, .bytes = std::int64_t{1024} * kibibytes});
  }
  const std::unique_ptr<Device> device = context.machine.make_device(run);
  std::vector<CollectiveTimes> times;
  for (auto& one : context.driver().visit_cells<CollectiveTimes>(
           "collective", specs, {.most = 1}, [&](const CollectiveSpec&spec, const auto&) {
             return time_collective(make_rank_devices(*device, run), run.place, spec);
           })) {
    if (one && one->status == Status::kOk) times.push_back(*std::move(one));
  }
  std::ranges::sort(times, {}, [](const CollectiveTimes& t) { return t.spec.bytes; });
  return collective_table(times);
}

}  // namespace

std::vector<RunSpec> shared_steps(const StudyContext& context, const RunSpec& step) {
  if (!context.sizes.parallel.is_on()) return {};
  // Buckets of a given size and gradients in parts change no answer by themselves.
  const auto is_late = [](const FormOfRun& form) {
    const Parallel& parallel = form.run.parallel;
    const bool has_size = parallel.bucket_bytes > 0;  // what is named is 0 or less
    return parallel.shard == 2 || has_size;
  };
  std::vector<FormOfRun> forms = runs_of(context, step.model, step.shape);
  std::ranges::stable_partition(forms, std::not_fn(is_late));
  std::vector<RunSpec> out;
  for (const FormOfRun& form : forms) out.push_back(form.run);
  return out;
}

void plan_ranks(StudyContext& context) {
  if (!context.sizes.parallel.is_on()) return;
  context.sections.push_back(section("ranks", {plan_table(context)}));
}

void rank_part(StudyContext& context) {
  context.announce("one step, shared by ranks in every form");
  const bool is_child = context.driver().is_child(), runs = context.machine.runs_ranks;
  // Sums take less than a second, and the steps after them all the time that is left.
  Table sums = runs && !is_child ? sum_table(context) : Table();
  if (runs) measure_shared_steps(context);
  if (is_child) return;
  const auto ranks = std::ranges::find(context.sections, "ranks", &StudySection::id);
  TRACESTEP_CHECK(ranks != context.sections.end(), "ranks are planned before they run");
  if (runs) {
    std::vector<Table> measured = {form_table(context), std::move(sums)};
    std::erase_if(measured, [](const Table& table) { return table.rows.empty(); });
    std::vector<Table>& tables = ranks->tables;
    tables.insert(tables.begin(), std::make_move_iterator(measured.begin()),
                  std::make_move_iterator(measured.end()));
  }
  ranks->reading +=
      " " + text_of_section("ranks", context.machine.runs_ranks ? "Threads" : "Processes");
}

}  // namespace tracestep
