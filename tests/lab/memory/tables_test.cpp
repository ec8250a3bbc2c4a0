// The tables of `memory`: parts add up to wholes, nothing is without an owner, formulas agree with
// programs, and a step that does not fit is explained. Numbers are worked out here by hand.
#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "analysis/saved_ledger.h"
#include "backends/null/null_device.h"
#include "lab/fit/advice.h"
#include "lab/memory/tables.h"
#include "lab/snapshots/snapshot.h"
#include "ops/functions.h"
#include "support/python.h"
#include "support/tables.h"

namespace tracestep {
namespace {

constexpr std::int64_t kB = 3, kT = 16, kC = 32, kF = 48, kL = 3, kH = 2, kV = 50;

RunSpec tiny_step(Mode mode, Granularity ops, std::string_view precision = "fp32") {
  RunSpec out;
  out.model = {.vocab = kV, .d_model = kC, .d_ff = kF, .layers = kL, .heads = kH};
  out.precision = parse_precision("test", precision);
  out.shape = {.batch = kB, .context = kT};
  out.mode = mode;
  out.ops = ops;
  return out;
}

MemoryCell cell_on_null(const RunSpec& step, std::int64_t limit = 0) {
  const auto device = [limit](const RunSpec&) { return make_null_device({.memory_limit = limit}); };
  return {.run = run_memory(device, {.step = step}), .limit_bytes = limit};
}

std::int64_t sum(const Table& table, std::string_view column) {
  std::int64_t out = 0;
  for (const auto& cells : table.rows) {
    const Json& first = cells[0];
    if (first.is_string() && first.as_string() == "total") continue;
    const Json& value = cells[table.index_of(column).value()];
    if (value.is_int()) out += value.as_int();
  }
  return out;
}

class MemoryTablesTest : public ::testing::Test {
 protected:
  void SetUp() override { ops::register_all(); }
};

TEST_F(MemoryTablesTest, CategoriesAndHoldersAddUpToThePeakAndLeaveNothingOver) {
  for (Mode mode : kAll<Mode>) {
    const MemoryCell cell = cell_on_null(tiny_step(mode, Granularity::kPrimitive));
    const Table categories = category_table(cell), holders = holder_table(cell);
    EXPECT_EQ(sum(categories, "predicted_bytes"), cell.run.peak_bytes);
    EXPECT_EQ(sum(categories, "measured_bytes"), cell.run.peak_bytes);
    EXPECT_EQ(testing::cell(categories, "unattributed", "measured_bytes").as_int(), 0);
    EXPECT_EQ(sum(holders, "bytes"), cell.run.peak_bytes);
    EXPECT_EQ(testing::cell(holders, "unattributed", "bytes").as_int(), 0);
  }
}

TEST_F(MemoryTablesTest, EveryLargeBufferHasAPathAnOpALineAndAReason) {
  const MemoryCell cell = cell_on_null(tiny_step(Mode::kStep, Granularity::kPrimitive));
  const Table table = largest_table(cell, 1'000'000);
  EXPECT_EQ(table.rows.size(), cell.run.map.buffers.size());
  for (const auto& row : table.rows) {
    // The rates of the optimizer are inputs of the whole program, as are its own few numbers.
    EXPECT_FALSE(row[table.index_of("op").value()].as_string().empty());
    EXPECT_FALSE(row[table.index_of("reason").value()].as_string().empty());
    EXPECT_THAT(row[table.index_of("source").value()].as_string(), ::testing::HasSubstr(":"))
        << row[0].as_string();
  }
}

TEST_F(MemoryTablesTest, EveryBufferIsMeasuredAtTheBytesPredicted) {
  const MemoryCell cell = cell_on_null(tiny_step(Mode::kStep, Granularity::kFused, "bf16"));
  const Table table = buffer_table(cell);
  for (const auto& row : table.rows) {
    if (row[table.index_of("predicted_bytes").value()].as_int() == 0) continue;
    EXPECT_EQ(row[table.index_of("difference_bytes").value()].as_int(), 0);
    EXPECT_GE(row[table.index_of("rounded_bytes").value()].as_int(),
              row[table.index_of("measured_bytes").value()].as_int());
  }
}

TEST_F(MemoryTablesTest, AMeasuredStepIsJudgedAndAPredictedOneIsNot) {
  MemoryCell cell = cell_on_null(tiny_step(Mode::kStep, Granularity::kFused));
  cell.run.device = "cpu";  // with times by hand
  const auto verdict = [&] {
    const Table table = peak_table(std::vector{cell});
    return testing::cell(table, 0, "verdict");
  };
  cell.run.step_ms = 100;
  cell.run.recorded_step_ms = 100.5;
  cell.run.node_ns.clear();
  EXPECT_EQ(verdict(), Json("ok"));
  cell.run.recorded_step_ms = 5;  // recording "costs" -95 %
  EXPECT_EQ(verdict(), Json("doubt: recorded_apart"));
  const Table measured = peak_table(std::vector{cell});
  EXPECT_TRUE(testing::cell(measured, 0, "host_before").is_object());
  cell.run.recorded_step_ms = 100.5;
  cell.run.node_ns = {226'000'000};  // kernels work for 226 % of the step
  EXPECT_EQ(verdict(), Json("invalid: missing_synchronization"));
  cell.run.node_ns.clear();
  cell.run.peak_bytes += saved_bytes(cell.run.program);
  EXPECT_EQ(verdict(), Json("invalid: two_graphs"));
  cell.run.measured = false;
  EXPECT_EQ(verdict(), Json());
}

TEST_F(MemoryTablesTest, APredictionOfFusedKernelsSaysThatTheyNeedACompiler) {
  RunSpec step = tiny_step(Mode::kStep, Granularity::kFused);
  step.executor = ExecutorKind::kCompiled;
  const auto assumes = [](const MemoryRun& run) {
    const Table table = peak_table(std::vector{MemoryCell{.run = run}});
    return testing::cell(table, 0, "assumes");
  };
  MemoryRun run = predict_memory(step, {.kind = DeviceKind::kCuda});
  EXPECT_THAT(assumes(run).as_string(), ::testing::StartsWith("NVRTC, for "));
  run.computes = true;  // it ran
  EXPECT_EQ(assumes(run), Json());
  EXPECT_EQ(assumes(predict_memory(step, {})), Json());
}

TEST_F(MemoryTablesTest, FromThePredictionToTheSegmentsEveryByteIsExplained) {
  const MemoryCell cell = cell_on_null(tiny_step(Mode::kStep, Granularity::kFused));
  const Table table = contract_table(cell);
  EXPECT_EQ(testing::cell(table, "difference", "bytes").as_int(), 0);
  EXPECT_EQ(testing::cell(table, "difference", "count").as_int(), 0);
  EXPECT_EQ(testing::cell(table, "measured peak, by the allocator", "bytes").as_int() +
                testing::cell(table, "rounding of blocks", "bytes").as_int() +
                testing::cell(table, "free inside segments", "bytes").as_int(),
            testing::cell(table, "reserved at that moment", "bytes").as_int());
  EXPECT_EQ(testing::cell(table, "reserved at that moment", "bytes").as_int(),
            cell.run.peak_reserved_bytes);
}

TEST_F(MemoryTablesTest, ThePhasesPeakTogetherIsThePeak) {
  const MemoryCell cell = cell_on_null(tiny_step(Mode::kStep, Granularity::kFused));
  const Table phases = phase_table(cell);
  std::int64_t top = 0;
  for (const auto& row : phases.rows) {
    EXPECT_EQ(row[phases.index_of("predicted_bytes").value()].as_int(),
              row[phases.index_of("measured_bytes").value()].as_int());
    top = std::max(top, row[phases.index_of("measured_bytes").value()].as_int());
  }
  EXPECT_EQ(top, cell.run.peak_bytes);
  EXPECT_EQ(phases.rows.size(), 3u);  // forward, backward, optimizer
}

TEST_F(MemoryTablesTest, TheTimelineKeepsThePeakHoweverFewItsRows) {
  const MemoryCell cell = cell_on_null(tiny_step(Mode::kStep, Granularity::kFused));
  for (std::size_t rows : {std::size_t{1}, std::size_t{7}, std::size_t{0}}) {
    const Table table = timeline_table(cell, rows);
    std::int64_t top = 0;
    for (const auto& row : table.rows) {
      top = std::max(top, row[table.index_of("measured_bytes").value()].as_int());
    }
    EXPECT_EQ(top, cell.run.peak_bytes) << rows;
    EXPECT_EQ(table.rows.size(), rows == 0 ? cell.run.moments.size() : rows);
  }
}

TEST_F(MemoryTablesTest, FormulasAgreeWithTheProgramWhereTheyAreExact) {
  std::vector<Granularity> choices(std::begin(kAllGranularities), std::end(kAllGranularities));
  for (Composite composite : kNamedComposites) {
    choices.push_back(Granularity::kPrimitive.with(composite));
  }
  for (Granularity ops : choices) {
    const Table table = formula_table(cell_on_null(tiny_step(Mode::kStep, ops)));
    const std::int64_t p = 2 * kV * kC + kL * (4 * kC * kC + 3 * kC * kF + 2 * kC) + kC;
    EXPECT_EQ(testing::cell(table, "weights", "bytes").as_int(), 4 * p);
    EXPECT_EQ(testing::cell(table, "weights", "measured_bytes").as_int(), 4 * p);
    EXPECT_EQ(testing::cell(table, "one tensor of the residual stream", "bytes").as_int(),
              4 * kB * kT * kC);
    for (const char* row :
         {"weights", "the same with transient gradients", "one tensor of the residual stream",
          "attention weights of one layer", "feed-forward hidden of one layer", "logits",
          "saved by one layer", "saved by the whole model"}) {
      EXPECT_EQ(testing::cell(table, row, "bytes"), testing::cell(table, row, "program_bytes"))
          << row << " " << name_of(ops);
    }
  }
}

// All but the number of the step, on which random rounding depends. Scales are the moments' own.
TEST_F(MemoryTablesTest, FormulasKnowHowMomentsAreStored) {
  for (const Moments moments : kAll<Moments>) {
    RunSpec step = tiny_step(Mode::kStep, Granularity::kFused);
    step.optimizer.moments = moments;
    const MemoryCell cell = cell_on_null(step);
    const Table formulas = formula_table(cell);
    const char* row = "the same with transient gradients";
    EXPECT_EQ(testing::cell(formulas, row, "program_bytes").as_int(),
              testing::cell(formulas, row, "bytes").as_int() + (moments == Moments::kF32 ? 0 : 4))
        << name_of(moments);
    for (const Holding& held : cell.run.holdings) {
      const MappedBuffer* buffer = cell.run.buffer(held);
      if (buffer == nullptr) continue;
      EXPECT_FALSE(holder_of(*buffer).first.ends_with("scale")) << buffer->path;
    }
  }
}

// The course's formula is of the layers, and so is what stands beside it: not logits and head.
TEST_F(MemoryTablesTest, TheCoursesFormulaIsHeldAgainstTheLayersAlone) {
  const Table table = formula_table(cell_on_null(tiny_step(Mode::kStep, Granularity::kPrimitive)));
  EXPECT_EQ(testing::cell(table, "saved by the course's PyTorch code, all layers", "program_bytes")
                .as_int(),
            kL * testing::cell(table, "saved by one layer", "program_bytes").as_int());
}

TEST_F(MemoryTablesTest, TheNarrowCopiesOfWeightsHaveTheirOwnLine) {
  const MemoryCell cell =
      cell_on_null(tiny_step(Mode::kForwardBackward, Granularity::kFused, "bf16"));
  // Two bytes for each weight that is multiplied: neither the embedding nor the norms.
  const std::int64_t copies = 2 * (kL * (4 * kC * kC + 3 * kC * kF) + kV * kC);
  const Table formulas = formula_table(cell);
  const char* const row = "narrow copies of all weights that are multiplied";
  EXPECT_EQ(testing::cell(formulas, row, "bytes").as_int(), copies);
  EXPECT_EQ(testing::cell(formulas, row, "program_bytes").as_int(), copies);
  const Table peaks = peak_table(std::vector{cell});
  const Json most = testing::cell(peaks, 0, "weight_cast_bytes");
  EXPECT_GT(most.as_int(), 0);
  EXPECT_LE(most.as_int(), copies);
}

TEST_F(MemoryTablesTest, SavedBytesLeaveTheNarrowCopiesOut) {
  const MemoryCell cell =
      cell_on_null(tiny_step(Mode::kForwardBackward, Granularity::kFused, "bf16"));
  const Table table = peak_table(std::vector{cell});
  const std::int64_t copies = 2 * (kL * (4 * kC * kC + 3 * kC * kF) + kV * kC);
  EXPECT_EQ(testing::cell(table, 0, "saved_bytes").as_int() + copies,
            sum(saved_by_op_table(cell), "bytes"));
}

TEST_F(MemoryTablesTest, PrecisionsAreComparedWithFp32OfTheSameCell) {
  const std::vector cells{cell_on_null(tiny_step(Mode::kForward, Granularity::kFused)),
                          cell_on_null(tiny_step(Mode::kForward, Granularity::kFused, "bf16"))};
  const Table table = peak_table(cells);
  const std::size_t column = table.index_of("versus_fp32_percent").value();
  EXPECT_TRUE(table.rows[0][column].is_null());
  EXPECT_NEAR(table.rows[1][column].as_double(),
              100.0 * (static_cast<double>(cells[1].run.peak_bytes) /
                           static_cast<double>(cells[0].run.peak_bytes) -
                       1.0),
              1e-9);
}

TEST_F(MemoryTablesTest, SavedBytesPerOpAndPerBlockAddUpToTheSameTotal) {
  for (Mode mode : {Mode::kForward, Mode::kForwardBackward, Mode::kStep}) {
    const MemoryCell cell = cell_on_null(tiny_step(mode, Granularity::kFused));
    const std::int64_t total =
        saved_bytes(cell_on_null(tiny_step(Mode::kStep, Granularity::kFused)).run.program);
    const Table ops = saved_by_op_table(cell), blocks = saved_by_block_table(cell);
    EXPECT_EQ(sum(ops, "bytes"), total) << name_of(mode);
    EXPECT_EQ(sum(blocks, "bytes"), total) << name_of(mode);
    EXPECT_EQ(sum(ledger_table(cell), "bytes"), total) << name_of(mode);
    // Three equal layers in one row, and what is saved once.
    ASSERT_EQ(blocks.rows.size(), 3u);
    EXPECT_EQ(blocks.rows[0][0].as_string(), "layers.0 to layers.2");
    const std::int64_t layer =
        4 * (8 * kB * kT * kC + 3 * kB * kT * kF + kB * kH * kT * kT + 2 * kB * kT);
    EXPECT_EQ(testing::cell(blocks, "layers.0 to layers.2", "bytes_each").as_int(), layer);
  }
}

TEST_F(MemoryTablesTest, ComputingAgainRunsBackToWhatIsKept) {
  const RunSpec step = tiny_step(Mode::kForwardBackward, Granularity::kFused);
  const Program program = step_program(step);
  for (const LedgerItem& item : saved_ledger(program)) {
    const Node& maker = program.node(item.producer);
    if (maker.origin().path == "layers.1.ffn.w1") {
      // Its operands, the normed input and the weight, are kept: one product, 2·BT·C·F.
      EXPECT_EQ(item.again.nodes.size(), 1u);
      EXPECT_EQ(item.again.cost.flops, 2 * kB * kT * kC * kF);
    }
    if (maker.origin().path == "layers.1.attn.residual") {
      // The sum, and the output projection that was not kept.
      EXPECT_EQ(item.again.nodes.size(), 2u);
      EXPECT_EQ(item.again.cost.flops, 2 * kB * kT * kC * kC + kB * kT * kC);
    }
    EXPECT_FALSE(item.again.nodes.empty());
    EXPECT_GT(item.last_reader, item.producer);
  }
}

TEST_F(MemoryTablesTest, AStepThatDoesNotFitNamesThePhaseAndTheHolders) {
  const RunSpec step = tiny_step(Mode::kForwardBackward, Granularity::kPrimitive);
  const std::int64_t peak = cell_on_null(step).run.peak_bytes;
  const MemoryCell cell = cell_on_null(step, peak - 1);
  ASSERT_TRUE(cell.run.oom.has_value());
  const Table failure = failure_table(cell);
  EXPECT_EQ(testing::cell(failure, "phase", "value").as_string(), "backward");
  EXPECT_EQ(testing::cell(failure, "missing at the peak", "value").as_string(), "1 B");
  std::int64_t live = 0;
  for (const LiveAllocation& block : cell.run.oom->live) live += block.requested_bytes;
  const Table holders = failure_holder_table(cell);
  EXPECT_EQ(sum(holders, "bytes"), live);
  EXPECT_LE(holders.rows.size(), 12u);  // ten, the rest, the total
}

TEST_F(MemoryTablesTest, AdamWsStatesAreHeldByKindAndNotByLayer) {
  const MemoryCell cell = cell_on_null(tiny_step(Mode::kStep, Granularity::kFused));
  std::int64_t bytes = 0, buffers = 0;
  const Table table = holder_table(cell);
  for (const auto& row : table.rows) {
    if (row[0] != Json("ffn.w1") || row[1] != Json("adamw.m")) continue;
    buffers += row[table.index_of("buffers").value()].as_int();
    bytes += row[table.index_of("bytes").value()].as_int();
  }
  EXPECT_EQ(buffers, kL);
  EXPECT_EQ(bytes, kL * 4 * kC * kF);
}

TEST_F(MemoryTablesTest, SnapshotsOfEveryModeKeepTheRulesOfTheViewer) {
  for (Mode mode : kAll<Mode>) {
    const MemoryCell cell = cell_on_null(tiny_step(mode, Granularity::kFused));
    EXPECT_EQ(broken_rule(snapshot_of(cell.run)), "") << name_of(mode);
    EXPECT_EQ(broken_rule(snapshot_of(cell.run, 50)), "") << name_of(mode);
  }
}

TEST_F(MemoryTablesTest, PythonReadsASnapshotAndReplaysItToTheSamePeak) {
  const MemoryCell cell = cell_on_null(tiny_step(Mode::kStep, Granularity::kFused));
  const PythonRun run = check_snapshot(snapshot_of(cell.run));
  if (!run.has_python) GTEST_SKIP() << "needs python3";
  EXPECT_EQ(run.status, 0) << run.out;
  EXPECT_EQ(run.out, std::to_string(cell.run.peak_bytes) + "\n");
}

TEST_F(MemoryTablesTest, TheSnapshotOfAFailedStepEndsWithItsFailure) {
  const RunSpec step = tiny_step(Mode::kForwardBackward, Granularity::kFused);
  const MemoryCell cell = cell_on_null(step, cell_on_null(step).run.peak_bytes - 1);
  const MemorySnapshot snapshot = snapshot_of(cell.run);
  EXPECT_EQ(snapshot.events.back().action, "oom");
  EXPECT_EQ(broken_rule(snapshot), "");
}

// The forward pass of plain PyTorch code as two published tables of 20 cells found it, each on a
// card of its own: OK or OOM for contexts 128, 256, 512 and 1024, batch 4, vocabulary 10000.
struct Published {
  const char* size;
  const char* status;  // one letter per context: + fits, - does not
};

// Cells without a status in the table (a blank) are left out.
int matches(std::span<const Published> table, const Accounting& as, double limit_gib,
            Mode mode = Mode::kForward) {
  int out = 0;
  for (const Published& row : table) {
    for (int i = 0; i < 4; ++i) {
      if (row.status[i] == ' ') continue;
      RunSpec step{.model = preset(row.size), .shape = {4, 128 << i}, .mode = mode};
      const auto limit = static_cast<std::int64_t>(limit_gib * 1024 * 1024 * 1024);
      const bool fits = accounted_peak(step, as).bytes <= limit;
      out += fits == (row.status[i] == '+');
    }
  }
  return out;
}

TEST_F(MemoryTablesTest, TwoLiveGraphsOfTheCoursesCodeGiveThePublishedStatuses) {
  const Published a100[] = {
      {"small", "++++"}, {"medium", "+++-"}, {"large", "+++-"}, {"xl", "++--"}, {"2.7B", "++--"}};
  EXPECT_EQ(matches(a100, {.saved_scores = 2, .live_graphs = 2}, 39.4), 20);
  EXPECT_EQ(matches(a100, {.saved_scores = 2, .live_graphs = 1}, 39.4), 18);
  const Published rtx5090[] = {
      {"small", "++++"}, {"medium", "+++-"}, {"large", "++--"}, {"xl", "+---"}, {"2.7B", "+---"}};
  EXPECT_EQ(matches(rtx5090, {.saved_scores = 3, .live_graphs = 2}, 31.3), 20);
  EXPECT_LT(matches(rtx5090, {.saved_scores = 3, .live_graphs = 1}, 31.3), 20);
}

TEST_F(MemoryTablesTest, OneAccountingAloneGivesEachPublishedTableWithBackward) {
  // On 31.3 GiB every cell is given, and only gradients and AdamW's states that stay explain all.
  const Published rtx5090[] = {
      {"small", "++++"}, {"medium", "+++-"}, {"large", "++--"}, {"xl", "----"}, {"2.7B", "----"}};
  const auto of_rtx5090 = [&](Mode mode, bool kept) {
    return matches(rtx5090, {.saved_scores = 3, .kept_gradients = kept}, 31.3, mode);
  };
  EXPECT_EQ(of_rtx5090(Mode::kStep, true), 20);
  EXPECT_EQ(of_rtx5090(Mode::kStep, false), 18);
  EXPECT_EQ(of_rtx5090(Mode::kForwardBackward, true), 16);
  EXPECT_EQ(of_rtx5090(Mode::kForwardBackward, false), 14);
  // On 39.4 GiB fifteen cells are given, and only gradients that go after each step explain all.
  const Published a100[] = {
      {"small", "++++"}, {"medium", "++++"}, {"large", "+++ "}, {"xl", "+++ "}, {"2.7B", "+   "}};
  const auto of_a100 = [&](Mode mode, bool kept) {
    return matches(a100, {.saved_scores = 2, .kept_gradients = kept}, 39.4, mode);
  };
  EXPECT_EQ(of_a100(Mode::kForwardBackward, false), 15);
  EXPECT_EQ(of_a100(Mode::kForwardBackward, true), 14);
  EXPECT_EQ(of_a100(Mode::kStep, false), 13);
  EXPECT_EQ(of_a100(Mode::kStep, true), 12);
}

}  // namespace
}  // namespace tracestep
