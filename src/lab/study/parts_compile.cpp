// The part of the study that runs the same step eager and compiled, and climbs the ladder.
#include <algorithm>

#include "lab/compile/tables.h"
#include "lab/study/study.h"

namespace tracestep {

// Returns attention's cells by context: softmax in primitive ops, as one kernel, and compiled.
std::vector<AttentionSpec> attention_ways(const StudyContext& context) {
  const StudySizes& sizes = context.sizes;
  AttentionSpec usual = sizes.attention;
  usual.width = sizes.widths.front();
  usual.run = context.here(usual.run);
  const Axis<AttentionSpec> ways = {
      [](AttentionSpec& s) { s.saved.exp = true; }, [](AttentionSpec&) {},
      [](AttentionSpec& s) { s.run.executor = ExecutorKind::kCompiled; }};
  return product<AttentionSpec>({usual}, {attention_contexts(sizes.variant_contexts), ways});
}

// Measures starts (first steps, for which kernels are compiled) of whole steps, then errors against
// float64, which take longest, then starts of forward with and without backward.
void start_part(StudyContext& context) {
  context.announce("errors against float64, and first steps");
  const StudySizes& sizes = context.sizes;
  const auto key = [](const RunSpec& run) { return key_of(run).dump(); };
  const auto add_starts = [&](Mode mode) {
    constexpr int kStarts = 2;
    for (const RunSpec& run : runs_in(context, "ways")) {
      if (run.mode != mode || !context.has_time_for(kStarts * context.seconds_of(run))) continue;
      const auto start =
          context.driver().besides<std::optional<StartTimes>>("start", full_key(run), [&] {
            std::optional<StartTimes> out;
            attempt([&] { out = measure_starts(context.machine.make_device, run); });
            return out;
          });
      if (start) context.starts[key(run)] = *start;
    }
  };
  StepErrors errors(context.machine.make_reference, sizes.error);
  const auto add_errors = [&](std::span<const RunSpec> runs) {
    for (const CellResult& cell : context.measured(runs)) {
      const RunSpec& run = cell.spec.step;
      if (cell.status != Status::kOk || !context.has_time_for(0)) continue;
      context.errors[key(run)] = context.driver().besides<std::optional<StepError>>(
          "error", full_key(run), [&] { return errors.of(context.machine.make_device, run); });
    }
  };
  add_starts(Mode::kStep);
  std::vector<RunSpec> precise = runs_in(context, "steps");
  std::erase_if(precise, [&](const RunSpec& run) {  // with gradients
    return run.model.name != sizes.precise.front().name || run.mode != Mode::kForwardBackward;
  });
  add_errors(precise);
  add_errors(runs_in(context, "ladder"));
  for (Mode mode : {Mode::kForwardBackward, Mode::kForward}) add_starts(mode);
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
    if (const AttentionResult* r = result_of(spec, context.attention_cells))
      attention.push_back(*r);
  }
  add(way_attention_table(attention));
  std::vector<RunSpec> saved = runs_in(context, "ways");
  std::erase_if(saved, [&](const RunSpec& run) {
    return run.mode != Mode::kForwardBackward ||
           run.model.name != context.sizes.compiled.front().name;
  });
  add(way_saved_table(context.machine.make_device, saved));
  const std::vector<RunSpec> runs = runs_in(context, "ladder");
  const std::vector<LadderStep> ladder =
      ladder_of(study_rungs(), runs, context.measured(runs), context.errors);
  if (!ladder.empty()) {
    add(ladder_table(ladder));
    out.reading += " " + text_of_section("compile", "Ladder");
  }
  context.sections.push_back(std::move(out));
}

}  // namespace tracestep
