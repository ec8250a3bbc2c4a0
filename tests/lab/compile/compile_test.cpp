// Eager against compiled: what the rungs of the ladder do, that every row is filled, and that a
// rung without effect says so.
#include <algorithm>
#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "backends/null/null_device.h"
#include "backends/reference/reference_device.h"
#include "base/error.h"
#include "ir/print.h"
#include "lab/compile/tables.h"
#include "lab/driver/driver.h"
#include "ops/functions.h"
#include "passes/pipeline.h"
#include "planning/needs.h"
#include "spec/fields.h"
#include "support/backends.h"
#include "support/tables.h"

namespace tracestep {
namespace {

using testing::cell;
using ::testing::HasSubstr;

RunSpec small_run() {
  ops::register_all();
  return {.model = {.vocab = 20, .d_model = 16, .d_ff = 24, .layers = 2, .heads = 2},
          .shape = {.batch = 2, .context = 8}};
}

DeviceFactory planning() {
  return [](const RunSpec&) { return make_null_device({}); };
}
DeviceFactory computing() {
  return [](const RunSpec&) { return testing::backend_named("cpu").make({}); };
}
DeviceFactory exact() {
  return [](const RunSpec&) { return make_reference_device({}); };
}

std::vector<const Rung*> rungs_of(std::initializer_list<const char*> names) {
  std::vector<const Rung*> out;
  for (const char* name : names) out.push_back(&rung_named("--rungs", name));
  return out;
}

std::vector<const Rung*> every_rung() {
  std::vector<const Rung*> out;
  for (const Rung& rung : all_rungs()) out.push_back(&rung);
  return out;
}

std::vector<LadderStep> climb(const DeviceFactory& device, const std::vector<const Rung*>& rungs,
                              std::int64_t error_layers = 0, int turns = 1) {
  StepErrors errors(exact(), {.layers = error_layers, .tokens = 4});
  const std::vector<RunSpec> runs = ladder_runs(small_run(), rungs);
  std::vector<CellSpec> specs;
  for (const RunSpec& run : runs) {
    specs.push_back({run, {.warmup = 1, .steps = 6, .recorded_steps = 0}});
  }
  std::vector<CellResult> results;
  std::map<std::string, std::optional<StepError>> of_runs;
  for (auto& result : Driver().visit_cells<CellResult>(
           "step", specs, {.least = turns, .most = turns},
           [&](const CellSpec&spec, const auto&) { return visit(device, spec, nullptr); })) {
    results.push_back(*std::move(result));
    if (results.back().status != Status::kOk) continue;
    const RunSpec& run = results.back().spec.step;
    of_runs[key_of(run).dump()] = errors.of(device, run);
  }
  return ladder_of(rungs, runs, results, of_runs);
}

TEST(LadderTest, EveryTurnAddsSamplesToEveryRung) {
  const std::vector<LadderStep> steps = climb(computing(), rungs_of({"norm", "arena"}), 0, 3);
  ASSERT_EQ(steps.size(), 3u);
  EXPECT_EQ(steps[1].rung->name, "norm");
  EXPECT_EQ(steps[2].rung->name, "arena");
  for (const LadderStep& step : steps) {
    EXPECT_EQ(step.cell.result.samples_ms.size(), 18u);
    EXPECT_EQ(step.cell.result.warmup_ms.size(), 1u) << "that of the first turn";
  }
  const std::string cut = "stopped in the middle of a turn: norm has 18 samples, arena has 12";
  EXPECT_EQ(std::ranges::count(ladder_table(steps).notes, cut), 0);
  std::vector<LadderStep> stopped = steps;
  stopped.back().cell.result.samples_ms.resize(12);
  EXPECT_EQ(std::ranges::count(ladder_table(stopped).notes, cut), 1);
}

TEST(LadderTest, TheTopHasEveryCompositeAndEveryPassThatCompiles) {
  RunSpec top = naive_run(small_run());
  EXPECT_EQ(top.ops, Granularity::kPrimitive);
  for (const Rung* rung : every_rung()) rung->climb(top);
  EXPECT_EQ(top.ops, Granularity::kFused);
  EXPECT_EQ(text_of(field_named("compile_passes"), top), "all");
  EXPECT_EQ(top.executor, ExecutorKind::kCompiled);
  EXPECT_EQ(top.launch_order, LaunchOrder::kDependent);
  EXPECT_EQ(top.attention, AttentionForm::kFlash);
  EXPECT_EQ(name_of(top.precision), "bf16");
}

TEST(LadderTest, TheKeyOfALadderHasWhatNoRungSets) {
  const RunSpec ground = naive_run(small_run());
  RunSpec top = ground;
  for (const Rung* rung : every_rung()) rung->climb(top);
  EXPECT_EQ(key_of_ladder(top), key_of_ladder(ground));
  for (const RunField& field : run_fields()) {
    EXPECT_EQ(is_set_by_rungs(field), field.value(top) != field.value(ground)) << field.name;
  }
}

TEST(LadderTest, EveryRowIsFilledAndErrorsAreThoseOfThePrecision) {
  const std::vector<LadderStep> steps = climb(computing(), every_rung(), 1);
  ASSERT_EQ(steps.size(), all_rungs().size() + 1);
  const Table table = ladder_table(steps);
  for (std::size_t row = 0; row < table.rows.size(); ++row) {
    const std::string rung = cell(table, row, "rung").as_string();
    EXPECT_EQ(cell(table, row, "status").as_string(), "ok") << rung;
    for (const char* column : {"median_ms", "interval_low_ms", "interval_high_ms"}) {
      EXPECT_GT(cell(table, row, column).as_double(), 0) << rung;
    }
    for (const char* column : {"launches", "moved_bytes", "peak_bytes", "saved_bytes"}) {
      EXPECT_GT(cell(table, row, column).as_int(), 0) << rung;
    }
    EXPECT_EQ(cell(table, row, "rung_speedup").is_null(), row == 0) << rung;
    EXPECT_EQ(cell(table, row, "changes").is_null(), row == 0) << rung;
    EXPECT_FALSE(cell(table, row, "verdict").is_null()) << rung;
    const bool has_arena =
        rung == "arena" || rung == "graph" || rung == "dependent" || rung == "lanes";
    EXPECT_EQ(cell(table, row, "arena_bytes").is_null(), !has_arena) << rung;
    const bool is_low = cell(table, row, "precision").as_string() == "bf16";
    const double error = cell(table, row, "gradient_error").as_double();
    EXPECT_GT(error, is_low ? 1e-4 : 0) << rung;
    EXPECT_LT(error, is_low ? 5e-2 : 1e-5) << rung;
  }
}

TEST(LadderTest, EachCompositeAsOneKernelSavesLaunchesAndTraffic) {
  const Table table = ladder_table(
      climb(planning(), rungs_of({"norm", "swiglu", "rope", "softmax", "optimizer", "loss"})));
  for (std::size_t row = 1; row < table.rows.size(); ++row) {
    const std::string rung = cell(table, row, "rung").as_string();
    EXPECT_EQ(cell(table, row, "changes").as_string(), "program") << rung;
    EXPECT_LT(cell(table, row, "launches").as_int(), cell(table, row - 1, "launches").as_int())
        << rung;
    EXPECT_LT(cell(table, row, "moved_bytes").as_int(),
              cell(table, row - 1, "moved_bytes").as_int())
        << rung;
  }
}

TEST(LadderTest, ARungThatFindsNothingToDoSaysSo) {
  // In float32 there are no narrow copies; nothing is captured; an arena changes how it runs.
  const std::vector<LadderStep> steps =
      climb(planning(), rungs_of({"shadow", "arena", "graph", "dependent"}));
  EXPECT_EQ(steps[1].effect, RungEffect::kNothing);
  EXPECT_EQ(steps[2].effect, RungEffect::kExecution);
  EXPECT_EQ(steps[3].effect, RungEffect::kNothing);
  EXPECT_EQ(steps[4].effect, RungEffect::kNothing);
  const Table table = ladder_table(steps);
  EXPECT_THAT(table.notes,
              ::testing::Contains(HasSubstr("shadow, graph, dependent change nothing")));
  EXPECT_THAT(table.notes, ::testing::Not(::testing::Contains(HasSubstr("arena"))));
}

TEST(LadderTest, AnyOrderOfRungsEndsInTheSameProgram) {
  std::vector<const Rung*> rungs = every_rung();
  const std::vector<LadderStep> up = climb(planning(), rungs);
  std::ranges::reverse(rungs);
  const std::vector<LadderStep> down = climb(planning(), rungs);
  EXPECT_EQ(up.back().cell.result.program, down.back().cell.result.program);
  EXPECT_EQ(up.back().cell.result.peak_bytes, down.back().cell.result.peak_bytes);
  EXPECT_NE(up[1].cell.result.program, down[1].cell.result.program);
}

TEST(LadderTest, AnUnknownRungIsNamedWithTheNearest) {
  try {
    rung_named("--rungs", "falsh");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUsage);
    EXPECT_THAT(error.what(), HasSubstr("did you mean flash?"));
  }
}

TEST(LadderTest, ARungThatDoesNotFitSaysOomAndTheNextGoOn) {
  const RunSpec naive = naive_run(small_run());
  const std::int64_t peak = visit(planning(), {naive, CompileSpec().protocol}, nullptr).peak_bytes;
  const DeviceFactory tight = [peak](const RunSpec&) {
    return make_null_device({.memory_limit = peak - 1});
  };
  const Table table = ladder_table(climb(tight, rungs_of({"norm"})));
  EXPECT_EQ(cell(table, 0, "status").as_string(), "oom");
  EXPECT_TRUE(cell(table, 0, "launches").is_null());
  EXPECT_EQ(cell(table, 1, "status").as_string(), "ok");
  EXPECT_TRUE(cell(table, 1, "rung_speedup").is_null());
}

TEST(WaysTest, EachRowIsHeldAgainstTheFirstOfTheSameStep) {
  std::vector<CompileCell> cells;
  for (Mode mode : {Mode::kForward, Mode::kStep}) {
    for (ExecutorKind executor : {ExecutorKind::kEager, ExecutorKind::kCompiled}) {
      RunSpec run = small_run();
      run.mode = mode;
      run.executor = executor;
      cells.push_back(
          {visit(computing(), {run, {.warmup = 1, .steps = 6, .recorded_steps = 0}}, nullptr)});
    }
  }
  const Table table = way_table(cells);
  for (std::size_t row : {std::size_t{0}, std::size_t{2}}) {
    EXPECT_TRUE(cell(table, row, "base_speedup").is_null());
    EXPECT_TRUE(cell(table, row, "arena_bytes").is_null());
    const double ratio =
        cell(table, row, "median_ms").as_double() / cell(table, row + 1, "median_ms").as_double();
    EXPECT_NEAR(cell(table, row + 1, "base_speedup").as_double(), ratio, 1e-9 * ratio);
    EXPECT_LE(cell(table, row + 1, "base_low").as_double(),
              cell(table, row + 1, "base_high").as_double());
    EXPECT_GT(cell(table, row + 1, "arena_bytes").as_int(), 0);
    EXPECT_LT(cell(table, row + 1, "arena_bytes").as_int(),
              cell(table, row + 1, "peak_bytes").as_int());
  }
  // An eager forward pass that takes longer than the step it is a part of.
  cells[0].result.samples_ms = std::vector<double>(6, 1e4);
  const Table judged = way_table(cells);
  for (std::size_t row : {std::size_t{0}, std::size_t{2}}) {
    EXPECT_THAT(cell(judged, row, "verdict").as_string(), HasSubstr("invalid: ")) << row;
    EXPECT_THAT(cell(judged, row, "verdict").as_string(), HasSubstr("part_over_whole")) << row;
  }
}

// The gain of compiling is told apart from that of fusing.
TEST(WaysTest, ACompiledRowIsHeldAgainstEagerWithTheSameOps) {
  std::vector<CompileCell> cells;
  double ms = 80;  // halved from row to row: primitive and fused, eager and compiled
  for (Granularity ops : {Granularity::kPrimitive, Granularity::kFused}) {
    for (ExecutorKind executor : {ExecutorKind::kEager, ExecutorKind::kCompiled}) {
      RunSpec run = small_run();
      run.ops = ops;
      run.executor = executor;
      cells.push_back({visit(
          planning(), CellSpec{run, {.warmup = 0, .steps = 6, .recorded_steps = 0}}, nullptr)});
      cells.back().result.samples_ms = std::vector<double>(6, ms);
      cells.back().result.computes = true;  // as on a device that has times
      ms /= 2;
    }
  }
  const Table table = way_table(cells);
  EXPECT_TRUE(cell(table, 0, "eager_speedup").is_null());
  EXPECT_NEAR(cell(table, 1, "eager_speedup").as_double(), 2, 1e-9);
  EXPECT_TRUE(cell(table, 2, "eager_speedup").is_null());
  EXPECT_NEAR(cell(table, 3, "eager_speedup").as_double(), 2, 1e-9);
  EXPECT_NEAR(cell(table, 3, "base_speedup").as_double(), 8, 1e-9);
}

TEST(WaysTest, EnergyIsOfOneStepWhereTheDeviceCountsAndLongEnough) {
  CellResult result;
  result.samples_ms = {200, 200, 200};
  EXPECT_FALSE(energy_per_step_j(result).has_value());
  result.facts_before.energy_j = 1000;
  result.facts_after.energy_j = 1240;
  EXPECT_DOUBLE_EQ(energy_per_step_j(result).value(), 80);
  result.facts_after.power_limit_w = 400;  // 240 J in 0.6 s
  EXPECT_DOUBLE_EQ(energy_per_step_j(result).value(), 80);
  result.facts_after.power_limit_w = 399;
  EXPECT_FALSE(energy_per_step_j(result).has_value());
  result.facts_after.power_limit_w = {};
  result.samples_ms = {2, 2, 2};
  EXPECT_FALSE(energy_per_step_j(result).has_value());
}

TEST(WaysTest, TheSecondStartFindsTheKernelsOfTheFirst) {
  std::vector<std::filesystem::path> folders;
  const DeviceFactory device = [&](const RunSpec& run) {
    folders.push_back(run.place.kernel_cache);
    return testing::backend_named("cpu").make({});
  };
  const StartTimes start = measure_starts(device, small_run());
  EXPECT_GT(start.first_ms, 0);
  EXPECT_GT(start.second_ms, 0);
  ASSERT_EQ(folders.size(), 2u);
  EXPECT_FALSE(folders[0].empty());
  EXPECT_EQ(folders[0], folders[1]);
  EXPECT_FALSE(std::filesystem::exists(folders[0]));
  measure_starts(device, small_run());
  EXPECT_NE(folders[2], folders[0]);
}

TEST(WaysTest, AFusedNodeOverTwoPartsCountsWhatEachOfThemMade) {
  const auto fusing = [](const RunSpec&) {
    return make_null_device(
        {.traits = {.kind = DeviceKind::kCuda}, .has_kernel = [](const OpDef& op) {
           return op.has_launches() &&
                  (op.kernel_class == KernelClass::kFused || runs_whole(DeviceKind::kCuda, op));
         }});
  };
  std::vector<RunSpec> runs(2, small_run());
  for (RunSpec& run : runs) run.mode = Mode::kForwardBackward;
  runs[1].executor = ExecutorKind::kCompiled;
  runs[1].compile_passes = {{"fuse"}};  // `merge` makes one tensor of two that are kept
  const Program compiled = step_program(runs[1], *fusing(runs[1]));
  ASSERT_TRUE(std::ranges::any_of(compiled.nodes, [](const Node& node) {
    return node.op->kernel_class == KernelClass::kFused && node.origins.size() > 1;
  }));
  const Table table = way_saved_table(fusing, runs);
  const std::size_t parts = table.rows.size() / 2;
  for (std::size_t row = 0; row < parts; ++row) {
    const std::string part = cell(table, row, "part").as_string();
    if (part != "layer" && part != "step") continue;
    EXPECT_EQ(cell(table, row, "bytes"), cell(table, row + parts, "bytes")) << part;
    EXPECT_EQ(cell(table, row, "tensors"), cell(table, row + parts, "tensors")) << part;
  }
}

TEST(WaysTest, ANormInPartsKeepsTwoFullTensorsAndAsOneKernelOne) {
  std::vector<RunSpec> runs;
  for (Granularity ops : kAllGranularities) {
    runs.push_back(small_run());
    runs.back().mode = Mode::kForwardBackward;
    runs.back().ops = ops;
  }
  const Table table = way_saved_table(planning(), runs);
  const auto row_of = [&](const char* ops, const char* part) {
    for (std::size_t row = 0; row < table.rows.size(); ++row) {
      if (cell(table, row, "ops").as_string() == ops &&
          cell(table, row, "part").as_string() == part)
        return row;
    }
    ADD_FAILURE() << ops << " " << part;
    return std::size_t{0};
  };
  constexpr std::int64_t kStream = 2 * 8 * 16 * 4, kRows = 2 * 8 * 4;
  // x and 1/√mean; in parts also x times it.
  EXPECT_EQ(cell(table, row_of("fused", "norm"), "tensors").as_int(), 2);
  EXPECT_EQ(cell(table, row_of("fused", "norm"), "full_size").as_int(), 1);
  EXPECT_EQ(cell(table, row_of("fused", "norm"), "bytes").as_int(), kStream + kRows);
  EXPECT_EQ(cell(table, row_of("primitive", "norm"), "full_size").as_int(), 2);
  EXPECT_EQ(cell(table, row_of("primitive", "norm"), "bytes").as_int(), 2 * kStream + kRows);
  for (const char* part : {"softmax", "swiglu", "layer", "step"}) {
    EXPECT_GT(cell(table, row_of("primitive", part), "bytes").as_int(),
              cell(table, row_of("fused", part), "bytes").as_int())
        << part;
  }
}

TEST(CompositesTest, OneKernelMovesAndKeepsWhatItsFormulaSays) {
  std::vector<RunSpec> runs(2, small_run());
  for (RunSpec& run : runs) run.mode = Mode::kForwardBackward;
  runs[0].ops = Granularity::kPrimitive;
  const Table table = composite_table(planning(), runs);
  struct Known {
    const char* name;
    std::int64_t forward, backward;        // launches as one kernel
    double forward_moved, backward_moved;  // bytes per element, float32
    double saved;
  };
  // An activation reads x and writes y, its gradient reads dy and x and writes dx. SwiGLU has two
  // operands and two gradients. Softmax keeps its result, and reads it with dy.
  for (const Known& known : {Known{"silu", 1, 1, 8, 12, 0}, Known{"gelu", 1, 1, 8, 12, 0},
                             Known{"swiglu", 1, 1, 12, 20, 0}, Known{"softmax", 1, 1, 8, 12, 4}}) {
    std::size_t parts = table.rows.size(), whole = parts;
    for (std::size_t row = 0; row < table.rows.size(); ++row) {
      if (cell(table, row, "composite").as_string() != known.name) continue;
      (cell(table, row, "ops").as_string() == "fused" ? whole : parts) = row;
    }
    ASSERT_LT(std::max(parts, whole), table.rows.size()) << known.name;
    EXPECT_EQ(cell(table, whole, "forward_launches").as_int(), known.forward) << known.name;
    EXPECT_EQ(cell(table, whole, "backward_launches").as_int(), known.backward) << known.name;
    EXPECT_EQ(cell(table, whole, "forward_moved").as_double(), known.forward_moved) << known.name;
    EXPECT_EQ(cell(table, whole, "backward_moved").as_double(), known.backward_moved) << known.name;
    EXPECT_EQ(cell(table, whole, "saved").as_double(), known.saved) << known.name;
    for (const char* column : {"forward_moved", "backward_moved", "saved"}) {
      EXPECT_GT(cell(table, parts, column).as_double(), cell(table, whole, column).as_double())
          << known.name << " " << column;
    }
  }
}

TEST(WaysTest, AttentionRunsCompiledWithTheBytesThatWerePredicted) {
  std::vector<AttentionResult> results;
  for (ExecutorKind executor : {ExecutorKind::kEager, ExecutorKind::kCompiled}) {
    AttentionSpec spec{
        .run = small_run(), .width = 8, .protocol = {.warmup = 1, .steps = 6, .max_seconds = 0}};
    spec.run.executor = executor;
    spec.run.shape.context = 32;
    results.push_back(measure_attention(computing(), spec));
    ASSERT_EQ(results.back().status, Status::kOk) << results.back().detail;
    EXPECT_EQ(results.back().peak_bytes, results.back().predicted_peak_bytes);
    EXPECT_EQ(results.back().before_backward_bytes, results.back().predicted_before_backward_bytes);
  }
  const Table table = way_attention_table(results);
  EXPECT_TRUE(cell(table, 0, "whole_speedup").is_null());
  EXPECT_GT(cell(table, 1, "whole_speedup").as_double(), 0);
  EXPECT_GT(cell(table, 1, "forward_speedup").as_double(), 0);
  EXPECT_FALSE(cell(table, 1, "verdict").is_null());
}

}  // namespace
}  // namespace tracestep
