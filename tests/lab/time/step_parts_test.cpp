// Forward, backward and optimizer timed alone: where they begin, and what the table makes of them.
#include "lab/time/step_parts.h"

#include <gtest/gtest.h>

#include "lab/time/cell.h"
#include "lab/time/tables.h"
#include "ops/functions.h"
#include "spec/parse_words.h"
#include "support/backends.h"

namespace tracestep {
namespace {

CellSpec spec_of(Mode mode, ExecutorKind executor = ExecutorKind::kEager) {
  CellSpec out;
  out.step.model = {.vocab = 50, .d_model = 32, .d_ff = 48, .layers = 2, .heads = 2};
  out.step.shape = {.batch = 2, .context = 16};
  out.step.mode = mode;
  out.step.executor = executor;
  out.protocol = {.warmup = 1, .steps = 2, .recorded_steps = 1, .part_steps = 3};
  return out;
}

class StepPartsTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { ops::register_all(); }
  static CellResult measure(const CellSpec& spec) {
    return measure_cell([](const RunSpec&) { return testing::backend_named(GetParam()).make({}); },
                        spec);
  }
};
INSTANTIATE_TEST_SUITE_P(Devices, StepPartsTest, ::testing::ValuesIn(testing::backend_names()));

TEST_P(StepPartsTest, AModeHasTheTimesOfItsParts) {
  for (ExecutorKind executor : kAll<ExecutorKind>) {
    const auto counts = [&](Mode mode) {
      const StepParts parts = measure(spec_of(mode, executor)).parts;
      for (const auto& times : {parts.forward_ms, parts.backward_ms, parts.optimizer_ms}) {
        for (double ms : times) EXPECT_GT(ms, 0);
      }
      return std::vector{parts.forward_ms.size(), parts.backward_ms.size(),
                         parts.optimizer_ms.size()};
    };
    EXPECT_EQ(counts(Mode::kInference), (std::vector<std::size_t>{3, 0, 0}));
    EXPECT_EQ(counts(Mode::kForward), (std::vector<std::size_t>{3, 0, 0}));
    EXPECT_EQ(counts(Mode::kForwardBackward), (std::vector<std::size_t>{3, 3, 0}));
    EXPECT_EQ(counts(Mode::kStep), (std::vector<std::size_t>{3, 3, 3}));
  }
}

TEST_P(StepPartsTest, PausesChangeNoNumberAndEndWithTheParts) {
  CellSpec spec = spec_of(Mode::kStep);
  const CellResult with = measure(spec);
  spec.protocol.part_steps = 0;
  spec.protocol.steps += 4;  // three steps and the one before them
  const CellResult without = measure(spec);
  EXPECT_EQ(with.loss, without.loss);
  EXPECT_EQ(with.peak_bytes, without.peak_bytes);
  EXPECT_TRUE(without.parts.forward_ms.empty());
}

TEST(PartStartsTest, NoKernelOfAPartLiesBeyondIt) {
  ops::register_all();
  for (const char* recompute : {"none", "blocks"}) {
    RunSpec step = spec_of(Mode::kStep).step;
    step.recompute = parse_recomputation("test", recompute);
    const Program program = step_program(step, DeviceTraits{});
    const BufferPlan plan = plan_buffers(program);
    const PartStarts starts = part_starts(program);
    ASSERT_GT(starts.backward, 0);
    ASSERT_GT(starts.optimizer, starts.backward);
    for (std::size_t i = 0; i < program.nodes.size(); ++i) {
      if (!plan.runs[i]) continue;
      const Phase phase = program.nodes[i].origin().phase;
      const auto id = static_cast<NodeId>(i);
      if (id < starts.backward) {
        EXPECT_EQ(phase, Phase::kForward) << i;
      }
      if (phase == Phase::kOptimizer) {
        EXPECT_GE(id, starts.optimizer) << i;
      }
      if (phase == Phase::kBackward || phase == Phase::kRecompute) {
        EXPECT_LT(id, starts.optimizer) << i;
      }
    }
  }
}

TEST(StepPartTableTest, MediansDeviationsAndTheirRatio) {
  const Json with = Json::Object{{"size", "tiny"},
                                 {"forward_samples_ms", Json::Array{1.0, 2.0, 3.0}},
                                 {"backward_samples_ms", Json::Array{4.0, 5.0, 6.0}}};
  const std::vector<ResultRow> rows{ResultRow(with),
                                    ResultRow(Json(Json::Object{{"size", "none"}}))};
  const Table table = step_part_table(rows);
  ASSERT_EQ(table.rows.size(), 1u);
  const auto cell = [&](std::string_view name) {
    for (std::size_t i = 0; i < table.columns.size(); ++i) {
      if (table.columns[i].name == name) return table.rows[0][i];
    }
    ADD_FAILURE() << name;
    return Json();
  };
  EXPECT_EQ(cell("steps"), Json(3));
  EXPECT_EQ(cell("forward_ms"), Json(2.0));
  EXPECT_EQ(cell("backward_ms"), Json(5.0));
  EXPECT_EQ(cell("backward_std_ms"), Json(1.0));
  EXPECT_EQ(cell("backward_over_forward"), Json(2.5));
  EXPECT_TRUE(cell("optimizer_ms").is_null());
}

TEST(EnergyTest, ComponentsShareTheEnergyOfAStepByTheirTime) {
  ops::register_all();
  CellResult result = measure_cell(
      [](const RunSpec&) { return testing::backend_named("cpu").make({}); }, spec_of(Mode::kStep));
  const auto energies = [&] {
    const Table table = time_by_component(result);
    const auto column = std::ranges::find(table.columns, "energy_j", &Column::name);
    std::vector<Json> out{Json(!column->data_only)};
    for (const auto& row : table.rows) {
      out.push_back(row[static_cast<std::size_t>(column - table.columns.begin())]);
    }
    return out;
  };
  for (const Json& cell : energies()) EXPECT_TRUE(cell.is_null() || cell == Json(false));
  result.device_span_ms = 1.5 * result.device_busy_ms;
  result.samples_ms = {400, 400};  // long enough for a counter of energy
  result.facts_before.energy_j = 100;
  result.facts_after.energy_j = 140;
  const std::vector<Json> all = energies();
  EXPECT_EQ(all.front(), Json(true));
  double sum = 0;
  for (std::size_t i = 1; i + 1 < all.size(); ++i) sum += all[i].as_double();
  EXPECT_NEAR(all.back().as_double(), 20, 1e-9);
  EXPECT_NEAR(sum, 20, 1e-9);
}

}  // namespace
}  // namespace tracestep
