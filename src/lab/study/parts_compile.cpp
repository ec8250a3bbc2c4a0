// The part of the study that runs the same step eager and compiled, and climbs the ladder.
#include <algorithm>

#include "lab/compile/tables.h"
#include "lab/study/study.h"

namespace tracestep {

// Naive attention in parts, with softmax as one kernel, and the latter compiled.
std::vector<AttentionSpec> attention_ways(const StudyContext& context) {
  std::vector<AttentionSpec> out;
  const StudySizes& sizes = context.sizes;
  for (std::int64_t tokens : sizes.variant_contexts) {
    for (const bool is_in_parts : {true, false}) {
      for (ExecutorKind executor : {ExecutorKind::kEager, ExecutorKind::kCompiled}) {
        if (is_in_parts && executor == ExecutorKind::kCompiled) continue;
        AttentionSpec spec = sizes.attention;
        spec.width = sizes.widths.front();
        spec.run = context.here(spec.run);
        spec.run.executor = executor;
        spec.run.shape.context = tokens;
        spec.saved.exp = is_in_parts;
        out.push_back(spec);
      }
    }
  }
  return out;
}

namespace {

// Measures errors against float64, for those of the runs that were measured.
void measure_errors(StudyContext& context, StepErrors& errors, std::span<const RunSpec> runs) {
  for (const CellResult& cell : context.measured(runs)) {
    if (cell.status != Status::kOk || !context.has_time_for(0)) continue;
    const RunSpec& run = cell.spec.step;
    context.errors[key_of(run).dump()] = errors.of(context.machine.make_device, run);
  }
}

// The first steps of a model in one mode.
void measure_starts(StudyContext& context, const ModelConfig& model, Mode mode) {
  constexpr int kStarts = 2;
  for (const RunSpec& run : runs_in(context, "ways", model)) {
    if (run.mode != mode || !context.has_time_for(kStarts * context.seconds_of(run))) continue;
    attempt([&] {
      context.starts[key_of(run).dump()] = measure_starts(context.machine.make_device, run);
    });
  }
}

}  // namespace

// Comes first, as many questions need it: a start takes as long as its kernels take to compile, and
// float64 longer than all else.
void start_part(StudyContext& context) {
  context.announce("errors against float64, and first steps");
  const StudySizes& sizes = context.sizes;
  StepErrors errors(context.machine.make_reference, sizes.error);
  for (const ModelConfig& model : sizes.compiled) measure_starts(context, model, Mode::kStep);
  measure_errors(context, errors, runs_in(context, "steps", sizes.precise.front()));
  measure_errors(context, errors, runs_in(context, "ladder"));
  for (Mode mode : {Mode::kForwardBackward, Mode::kForward}) {
    for (const ModelConfig& model : sizes.compiled) measure_starts(context, model, mode);
  }
}

void add_compile_section(StudyContext& context) {
  StudySection out = section("compile", {});
  const auto add = [&](Table table) {
    if (!table.rows.empty()) out.tables.push_back(std::move(table));
  };
  std::vector<CompileCell> cells;
  for (const CellResult& cell : context.measured(runs_in(context, "ways"))) {
    const auto start = context.starts.find(key_of(cell.spec).dump());
    cells.push_back(
        {cell, start == context.starts.end() ? std::optional<StartTimes>() : start->second});
  }
  add(way_table(cells));
  std::vector<AttentionResult> attention;
  for (const AttentionSpec& spec : attention_ways(context)) {
    if (const AttentionResult* r = context.attention_cells.find(spec)) attention.push_back(*r);
  }
  add(way_attention_table(attention));
  std::vector<RunSpec> saved = runs_in(context, "ways", context.sizes.compiled.front());
  std::erase_if(saved, [](const RunSpec& run) { return run.mode != Mode::kForwardBackward; });
  add(way_saved_table(context.machine.make_device, saved));
  const std::vector<RunSpec> runs = runs_in(context, "ladder");
  std::vector<CellResult> results;
  for (const RunSpec& run : runs) {
    if (const CellResult* found = context.steps.find({run, {}})) results.push_back(*found);
  }
  const std::vector<LadderStep> ladder = ladder_of(study_rungs(), runs, results, context.errors);
  if (!ladder.empty()) {
    add(ladder_table(ladder));
    out.reading += " " + text_of_section("compile", "Ladder");
  }
  context.sections.push_back(std::move(out));
}

}  // namespace tracestep
