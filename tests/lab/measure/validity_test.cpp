// Every check of the validity checker: silent on a sound row, loud when its fault is planted.
#include "lab/measure/validity.h"

#include <gtest/gtest.h>

#include "backends/null/null_device.h"
#include "lab/time/cell.h"
#include "ops/functions.h"
#include "support/backends.h"

namespace tracestep {
namespace {

Json list(std::vector<double> values) {
  Json out = Json::array();
  for (double v : values) out.push_back(v);
  return out;
}

// small, B = 4, T = 128, one step. P by hand: 2·10000·768 + 12·(4·768² + 3·768·3072 + 2·768) + 768.
// FLOPs by hand, three passes of: 12 layers of 2·512·(4·768² + 3·768·3072) and 4·512·128·768, and
// the head, 2·512·768·10000.
constexpr double kFlops = 3.0 * (12.0 * (1024.0 * 9437184.0 + 201326592.0) + 7864320000.0);

Json sound() {
  Json row = Json::object();
  row["size"] = "small";
  row["context"] = 128;
  row["batch"] = 4;
  row["vocab"] = 10000;
  row["mode"] = "step";
  row["precision"] = "fp32";
  row["ops"] = "fused";
  row["device"] = "cpu";
  row["status"] = "ok";
  row["parameters"] = std::int64_t{128625408};
  row["samples_ms"] = list({100, 101, 99, 100.5, 99.5, 100.2, 99.8, 100.1, 99.9, 100});
  row["warmup_ms"] = list({150, 100});
  row["median_ms"] = 100.0;
  row["wall_ms"] = 100.0;
  row["device_span_ms"] = 99.0;
  row["device_busy_ms"] = 97.0;
  row["instrumented_wall_ms"] = 101.0;
  row["peak_bytes"] = std::int64_t{3} << 30;
  row["predicted_peak_bytes"] = std::int64_t{3} << 30;
  row["saved_bytes"] = std::int64_t{1} << 30;
  row["outside_bytes"] = std::int64_t{1} << 28;
  row["major_faults"] = 0;
  row["flops"] = static_cast<std::int64_t>(kFlops);
  row["tflops"] = kFlops / 0.1 * 1e-12;
  row["roof_tflops"] = 8.0;
  row["tokens_per_s"] = 5120.0;
  row["launches"] = 1000;
  row["stopped_by"] = "steps";
  row["profiled"] = false;
  return row;
}

Json machine() {
  Json out = Json::object();
  out["memory_total_bytes"] = std::int64_t{16} << 30;
  out["gpu_memory_bytes"] = std::int64_t{80} << 30;
  return out;
}

std::vector<std::string> codes_of(const Json& row) {
  std::vector<std::string> out;
  for (const Verdict& v : judge(ResultRow(row, machine()))) out.push_back(v.code);
  return out;
}

using Codes = std::vector<std::string>;

TEST(ValidityTest, ASoundRowIsLeftAlone) {
  EXPECT_EQ(codes_of(sound()), Codes{});
  EXPECT_EQ(summary_of(judge(ResultRow(sound(), machine()))), "ok");
}

TEST(ValidityTest, AMissingSynchronizationShowsInTheSpan) {
  Json row = sound();  // the clock stopped when everything was issued
  row["device_span_ms"] = 640.0;
  EXPECT_EQ(codes_of(row), Codes{"missing_synchronization"});
}

TEST(ValidityTest, AWallFarBelowBusyIsAMissingSynchronization) {
  Json row = sound();
  row["device_span_ms"] = Json();
  row["device_busy_ms"] = 170.0;
  EXPECT_EQ(codes_of(row), Codes{"missing_synchronization"});
  row["device_busy_ms"] = 130.0;  // recorded steps may be slower than timed ones
  EXPECT_EQ(codes_of(row), Codes{});
  // On a busy machine one timed step was as slow as the recorded ones.
  row["device_busy_ms"] = 170.0;
  row["samples_ms"] = list({100, 101, 99, 100.5, 99.5, 100.2, 99.8, 180, 99.9, 100});
  for (const std::string& code : codes_of(row)) EXPECT_NE(code, "missing_synchronization");
}

TEST(ValidityTest, AWarmupOfZeroIsNamedWithWhatItCosts) {
  Json row = sound();
  row["warmup_ms"] = Json::array();
  row["samples_ms"] = list({250, 101, 99, 100, 99.5, 100.2, 99.8, 100.1, 99.9, 100});
  const auto verdicts = judge(ResultRow(row, machine()));
  ASSERT_EQ(codes_of(row), (Codes{"no_warmup", "unsteady"}));
  EXPECT_NE(verdicts[0].text.find("2.50 times the median"), std::string::npos);
}

TEST(ValidityTest, AWarmupThatWasTooShortShowsInTheFirstSample) {
  Json row = sound();
  row["samples_ms"] = list({130, 101, 99, 100, 99.5, 100.2, 99.8, 100.1, 99.9, 100});
  EXPECT_EQ(codes_of(row), Codes{"warmup_too_short"});
}

TEST(ValidityTest, TooFewUnsteadyAndDriftingSamplesAreToldApart) {
  Json row = sound();
  row["samples_ms"] = list({100, 101, 99, 100.5, 99.5});
  EXPECT_EQ(codes_of(row), Codes{"too_few_samples"});
  row["samples_ms"] = list({80, 120, 85, 115, 80, 120, 86, 114, 100, 100});
  EXPECT_EQ(codes_of(row), Codes{"unsteady"});
  row["samples_ms"] = list({97, 97.1, 97.2, 97.3, 97.4, 102.6, 102.7, 102.8, 102.9, 103});
  EXPECT_EQ(codes_of(row), Codes{"drifting"});
}

TEST(ValidityTest, ACriterionThatWasNotMetIsNamed) {
  Json row = sound();
  row["stopped_by"] = "noise";
  EXPECT_EQ(codes_of(row), Codes{});
  row["stopped_by"] = "max-seconds";
  EXPECT_EQ(codes_of(row), Codes{"criterion_not_met"});
}

TEST(ValidityTest, AStepThatWaitsForItsHostIsLaunchBound) {
  Json row = sound();
  row["device_busy_ms"] = 43.0;
  const auto verdicts = judge(ResultRow(row, machine()));
  ASSERT_EQ(codes_of(row), Codes{"launch_bound"});
  EXPECT_EQ(verdicts[0].severity, Severity::kNote);
  EXPECT_NE(verdicts[0].text.find("43 %"), std::string::npos);
  EXPECT_NE(verdicts[0].text.find("57.0 µs per launch"), std::string::npos);
}

TEST(ValidityTest, InstrumentsProfilersAndThrottlingAreNamed) {
  Json row = sound();
  row["instrumented_wall_ms"] = 112.0;
  EXPECT_EQ(codes_of(row), Codes{"instrument_cost"});
  row = sound();
  row["profiled"] = true;
  EXPECT_EQ(codes_of(row), Codes{"profiled"});
  row = sound();
  row["throttled"] = "held by the power limit for 3.0 ms";
  EXPECT_EQ(codes_of(row), Codes{"throttled"});
}

TEST(ValidityTest, NothingIsFasterThanTheRoof) {
  Json row = sound();
  row["roof_tflops"] = 2.0;
  EXPECT_EQ(codes_of(row), Codes{"faster_than_the_roof"});
  row["roof_tflops"] = Json();
  EXPECT_EQ(codes_of(row), Codes{});
}

TEST(ValidityTest, ASecondsForMillisecondsMixUpIsFound) {
  Json row = sound();
  row["tokens_per_s"] = 5.12;
  EXPECT_EQ(codes_of(row), Codes{"unit_mix_up"});
  row = sound();
  row["median_ms"] = 0.1;
  EXPECT_EQ(codes_of(row), Codes{"unit_mix_up"});
}

TEST(ValidityTest, ASwappedLabelHasOtherFlopsOrParameters) {
  Json row = sound();
  row["mode"] = "forward";  // the FLOPs are those of a whole step
  EXPECT_EQ(codes_of(row), Codes{"swapped_label"});
  row = sound();
  row["size"] = "medium";
  EXPECT_EQ(codes_of(row), Codes{"swapped_label"});
  row = sound();
  row["cell"] = Json::object();
  row["cell"]["precision"] = "bf16";
  EXPECT_EQ(codes_of(row), Codes{"swapped_label"});
}

TEST(ValidityTest, ASecondGraphShowsInThePeak) {
  Json row = sound();
  row["peak_bytes"] = (std::int64_t{3} << 30) + (std::int64_t{1} << 30);
  EXPECT_EQ(codes_of(row), Codes{"two_graphs"});
  row["peak_bytes"] = (std::int64_t{3} << 30) + 4096;
  EXPECT_EQ(codes_of(row), Codes{"peak_differs"});
}

TEST(ValidityTest, MemoryThatIsNotThereIsASpill) {
  Json row = sound();
  row["major_faults"] = 1000;
  EXPECT_EQ(codes_of(row), Codes{"host_spill"});
  row = sound();
  row["peak_bytes"] = row["predicted_peak_bytes"] = std::int64_t{17} << 30;
  EXPECT_EQ(codes_of(row), Codes{"host_spill"});
  row["device"] = "cuda:0";  // it has more
  EXPECT_EQ(codes_of(row), Codes{});
}

TEST(ValidityTest, WithoutNumbersTheDeviceSaysSoAndNothingElse) {
  Json row = sound();
  row["device"] = "null";
  row["tflops"] = row["tokens_per_s"] = Json();
  row["warmup_ms"] = Json::array();
  row["device_busy_ms"] = 1.0;
  EXPECT_EQ(codes_of(row), Codes{"nothing_computed"});
  row["status"] = "oom";
  EXPECT_EQ(codes_of(row), Codes{});
}

TEST(ValidityTest, MoreWorkInLessTimeMeansSwappedLabels) {
  Json step = sound(), forward = sound();
  forward["mode"] = "forward";
  forward["flops"] = static_cast<std::int64_t>(kFlops / 3);
  std::vector<ResultRow> rows{ResultRow(step), ResultRow(forward)};
  EXPECT_TRUE(judge_together(rows).empty());  // as long as each other
  forward["samples_ms"] = list({300, 301, 302});
  forward["median_ms"] = 301.0;
  rows[1] = ResultRow(forward);
  const auto found = judge_together(rows);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].row, 0u);
  EXPECT_EQ(found[0].verdict.code, "more_work_in_less_time");
  forward["context"] = 256;  // not comparable
  rows[1] = ResultRow(forward);
  EXPECT_TRUE(judge_together(rows).empty());
}

TEST(ValidityTest, ABackwardOfManyForwardsIsACollapse) {
  Json step = sound(), forward = sound();
  forward["mode"] = "forward";
  forward["flops"] = static_cast<std::int64_t>(kFlops / 3);
  forward["samples_ms"] = list({33, 33, 33});
  forward["median_ms"] = 33.0;
  step["median_ms"] = 6200.0;  // 186 forwards
  step["samples_ms"] = list({6200, 6200, 6200});
  const std::vector<ResultRow> rows{ResultRow(forward), ResultRow(step)};
  const auto found = judge_together(rows);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].row, 1u);
  EXPECT_EQ(found[0].verdict.code, "collapsed_speed");
}

TEST(ValidityTest, NotesNameTheRowAndCountWhatStands) {
  Json bad = sound();
  bad["mode"] = "forward";
  const std::vector<ResultRow> rows{ResultRow(sound(), machine()), ResultRow(bad, machine())};
  const std::vector<std::string> notes = validity_notes(rows);
  ASSERT_EQ(notes.size(), 2u);
  EXPECT_TRUE(notes[0].starts_with("invalid: small 128 forward fp32 fused: "));
  EXPECT_TRUE(notes[1].starts_with("validity: 1 of 2 measured rows without objection"));
}

TEST(ValidityTest, TheSummaryKeepsTheWorst) {
  const std::vector<Verdict> verdicts = {{"launch_bound", Severity::kNote, ""},
                                         {"two_graphs", Severity::kInvalid, ""},
                                         {"unsteady", Severity::kDoubt, ""}};
  EXPECT_EQ(summary_of(verdicts), "invalid: two_graphs");
}

TEST(ValidityTest, MeasuredRowsOfEveryBackEndCarryTheirOwnLabel) {
  ops::register_all();
  CellSpec spec;
  spec.step.model = {.vocab = 50, .d_model = 32, .d_ff = 48, .layers = 2, .heads = 2};
  spec.step.shape = {.batch = 2, .context = 16};
  spec.protocol.warmup = 1;
  spec.protocol.steps = 2;
  spec.protocol.recorded_steps = 1;
  for (const std::string& name : testing::backend_names()) {
    for (Mode mode : kAllModes) {
      spec.step.mode = mode;
      const CellResult result =
          measure_cell([&](const RunSpec&) { return testing::backend_named(name).make({}); }, spec);
      std::vector<Column> columns = cell_columns();
      std::vector<Json> row = cell_row(result);
      columns.push_back({.name = "cell", .kind = ColumnKind::kStructured});
      Json cell = Json::object();
      cell["d_model"] = 32;
      cell["d_ff"] = 48;
      cell["layers"] = 2;
      row.push_back(cell);
      for (const Verdict& v : judge(ResultRow::of(columns, row, machine()))) {
        EXPECT_TRUE(v.code != "swapped_label" && v.code != "unit_mix_up" && v.code != "two_graphs")
            << name << " " << name_of(mode) << ": " << v.text;
      }
      EXPECT_EQ(result.saved_bytes > 0, mode != Mode::kInference);
    }
  }
}

}  // namespace
}  // namespace tracestep
