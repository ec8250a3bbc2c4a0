// The part of the study that runs the same step eager and compiled, and climbs the ladder.
#include <algorithm>

#include "lab/compile/tables.h"
#include "lab/study/study.h"

namespace tracestep {
namespace {

// Eight steps, for an interval of every median.
constexpr CompileSpec kTimes{.protocol = {.warmup = 1, .steps = 8, .recorded_steps = 0}};

CompileSpec times_of(const StudyContext& context, const RunSpec& run) {
  CompileSpec out = kTimes;
  out.protocol = context.until_steady(out.protocol, context.seconds_of(run));
  return out;
}

// As plain framework code runs it, with composite kernels, and compiled.
std::vector<RunSpec> ways_of(const StudyContext& context, const ModelConfig& model, Mode mode) {
  const RunSpec run = context.here({.model = model, .shape = context.sizes.shape, .mode = mode});
  std::vector<RunSpec> out(3, run);
  out[0].ops = Granularity::kPrimitive;
  out[2].executor = ExecutorKind::kCompiled;
  return out;
}

void time_ways(StudyContext& context, std::span<const ModelConfig> models,
               std::vector<CompileCell>& out) {
  for (const ModelConfig& model : models) {
    for (Mode mode : {Mode::kForward, Mode::kForwardBackward, Mode::kStep}) {
      for (const RunSpec& run : ways_of(context, model, mode)) {
        constexpr int kStarts = 2;
        const double seconds =
            context.seconds_of(run) * (kTimes.protocol.warmup + kTimes.protocol.steps + kStarts);
        if (!context.has_time_for(seconds)) continue;
        out.push_back(measure_way(context.machine.make_device, run, times_of(context, run)));
      }
    }
  }
}

std::vector<AttentionResult> time_attention(StudyContext& context) {
  std::vector<AttentionResult> out;
  const StudySizes& sizes = context.sizes;
  for (std::int64_t tokens : sizes.variant_contexts) {
    for (const RunSpec& way : ways_of(context, sizes.compiled.front(), Mode::kForwardBackward)) {
      AttentionSpec spec = sizes.attention;
      if (!context.has_time_for(spec.protocol.max_seconds)) continue;
      spec.width = sizes.widths.front();
      spec.run.place = way.place;
      spec.run.seed = way.seed;
      spec.run.executor = way.executor;
      spec.run.shape.context = tokens;
      spec.saved.exp = way.ops == Granularity::kPrimitive;
      out.push_back(measure_attention(context.machine.make_device, spec));
    }
  }
  return out;
}

// Of the smallest model; empty when there is no time for the whole of it.
std::vector<LadderStep> climb(StudyContext& context) {
  const RunSpec run = ways_of(context, context.sizes.compiled.front(), Mode::kStep).front();
  std::vector<const Rung*> rungs;
  for (const Rung& rung : all_rungs()) rungs.push_back(&rung);
  const double each = context.seconds_of(run) * (kTimes.protocol.warmup + kTimes.protocol.steps);
  if (!context.has_time_for(each * static_cast<double>(rungs.size() + 1))) return {};
  StepErrors errors(context.machine.make_reference, context.sizes.error);
  return climb_ladder(context.machine.make_device, errors, run, rungs,
                      {.protocol = times_of(context, run).protocol}, nullptr,
                      [](const std::string&) {});
}

}  // namespace

void compile_part(StudyContext& context) {
  context.announce("steps, attention and their bytes, eager and compiled");
  StudySection out{
      .id = "compile",
      .title = "Eager and compiled",
      .reading =
          "The same step as plain framework code runs it, with a kernel for each composite, "
          "and compiled: passes that save launches and traffic, one arena, one graph where "
          "the device has such. Moved bytes are modelled."};
  const auto add = [&](Table table) {
    if (!table.rows.empty()) out.tables.push_back(std::move(table));
  };
  // Every question first, larger models with the time that is left.
  const std::span models = context.sizes.compiled;
  std::vector<CompileCell> ways;
  time_ways(context, models.first(1), ways);
  const std::vector<AttentionResult> attention = time_attention(context);
  const std::vector<LadderStep> ladder = climb(context);
  time_ways(context, models.subspan(1), ways);
  for (const CompileCell& way : ways) context.ways.push_back({way.result.spec, way.result});
  add(way_table(ways));
  add(way_attention_table(attention));
  add(way_saved_table(context.machine.make_device,
                      ways_of(context, models.front(), Mode::kForwardBackward)));
  for (const LadderStep& step : ladder) {
    context.rungs.push_back({step.cell.result.spec, step.cell.result});
  }
  add(ladder_table(ladder));
  if (!ladder.empty()) {
    out.reading +=
        " The ladder adds one of these after the other; a rung that finds nothing to do "
        "here says so.";
  }
  out.charts = {{.kind = "bars",
                 .title = "Median time of a step on each rung",
                 .table = "ladder",
                 .options = Json::Object{{"label", Json::Array{"rung"}},
                                         {"values", Json::Array{"median_ms"}}}}};
  if (out.tables.empty() || out.tables.back().name != "ladder") out.charts.clear();
  context.sections.push_back(std::move(out));
}

}  // namespace tracestep
