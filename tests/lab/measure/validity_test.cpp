// Every check of the validity checker: silent on a sound row, loud when its fault is planted.
#include "lab/measure/validity.h"

#include <algorithm>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "backends/null/null_device.h"
#include "lab/measure/sound_row.h"
#include "lab/time/cell.h"
#include "ops/functions.h"
#include "support/backends.h"
#include "support/tables.h"

namespace tracestep {
namespace {

using testing::list;
using testing::sound;

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

// Changes of a sound row, and what each check says of it: "invalid two_graphs", a text that it
// says.
struct Planted {
  const char *changes, *verdicts, *says = "";
};

constexpr Planted kPlanted[] = {
    {"", ""},
    // The clock stopped when everything was issued.
    {"device_span_ms 640.0", "invalid missing_synchronization"},
    {"device_span_ms -; device_busy_ms 170.0",
     "invalid missing_synchronization, note recorded_apart"},
    // Recorded steps may be slower than timed ones, and one timed step as slow as they.
    {"device_span_ms -; device_busy_ms 130.0", "note recorded_apart"},
    {"device_span_ms -; device_busy_ms 170.0; "
     "samples_ms [100, 101, 99, 100.5, 99.5, 100.2, 99.8, 180, 99.9, 100]",
     "doubt unsteady"},
    // Without a wall of their own nobody knows what held recorded steps up.
    {"device_span_ms -; instrumented_wall_ms -; device_busy_ms 310.0", "doubt recorded_apart"},
    {"device_span_ms -; instrumented_wall_ms -; device_busy_ms 130.0", "note recorded_apart"},
    // Warm-up and samples.
    {"warmup_ms []; samples_ms [250, 101, 99, 100, 99.5, 100.2, 99.8, 100.1, 99.9, 100]",
     "doubt no_warmup, doubt unsteady", "2.50 times the median"},
    {"samples_ms [130, 101, 99, 100, 99.5, 100.2, 99.8, 100.1, 99.9, 100]",
     "doubt warmup_too_short"},
    {"samples_ms [100, 101, 99, 100.5, 99.5]", "doubt too_few_samples"},
    {"samples_ms [80, 120, 85, 115, 80, 120, 86, 114, 100, 100]", "doubt unsteady"},
    {"samples_ms [97, 97.1, 97.2, 97.3, 97.4, 102.6, 102.7, 102.8, 102.9, 103]", "doubt drifting"},
    {"stopped_by noise", ""},
    {"stopped_by max-seconds", "doubt criterion_not_met"},
    {"stopped_by max-seconds; samples_ms [100, 101, 99]",
     "doubt too_few_samples, doubt criterion_not_met",
     "so few steps show no noise when max-seconds"},
    // Other programs may explain times as noise; bytes are the same beside whatever runs.
    {"device_span_ms 640.0; others_cores 1.3",
     "note others_running, doubt missing_synchronization"},
    {"device_span_ms 640.0; others_cores 1.3; predicted_peak_bytes 1",
     "note others_running, doubt missing_synchronization, invalid two_graphs"},
    // Recorded launches that were held up; of a profile shares are all that it has.
    {"interrupted_ms 0.9", ""},
    {"interrupted_ms 20.0", "note uneven_instances"},
    {"interrupted_ms 20.0; samples_ms []", "note instrument_cost, doubt uneven_instances"},
    {"kernels_ms 97.5", ""},
    {"kernels_ms 120.0", "note overlapping_kernels"},
    {"device_busy_ms 43.0", "note launch_bound", "kernels work 43 %"},
    {"device_busy_ms 43.0", "note launch_bound", "57.0 µs per launch"},
    {"device_busy_ms 35.0", "note launch_bound"},
    // Recorded steps had the machine for themselves, or show no such rest; the median stays the
    // sound row's.
    {"device_busy_ms 35.0; instrumented_wall_ms 36.0", "note recorded_apart"},
    {"samples_ms [44, 60, 99, 100.5, 99.5, 100.2, 99.8, 100.1, 99.9, 100]; device_busy_ms 41.0; "
     "instrumented_wall_ms 60.0",
     "doubt unsteady, note launch_bound, invalid unit_mix_up"},
    {"samples_ms [44, 60, 99, 100.5, 99.5, 100.2, 99.8, 100.1, 99.9, 100]; device_busy_ms 41.0; "
     "instrumented_wall_ms 60.0; interrupted_ms 10.0",
     "doubt unsteady, note uneven_instances, invalid unit_mix_up"},
    {"samples_ms [44, 60, 99, 100.5, 99.5, 100.2, 99.8, 100.1, 99.9, 100]; device_busy_ms 41.0; "
     "instrumented_wall_ms 43.0",
     "doubt unsteady, invalid unit_mix_up"},
    // Instruments, profilers, throttling.
    {"instrumented_wall_ms 102.5; recorded_by device profiler", "note instrument_cost",
     "recorded steps (by device profiler) take 2.5 % longer"},
    {"profiled true", "doubt profiled"},
    {"throttled held by the power limit for 3.0 ms", "doubt throttled"},
    // A roof that was measured while others ran is too low, and judges nothing.
    {"roof_tflops 2.0", "invalid faster_than_the_roof"},
    {"roof_tflops 2.0; roof_others_cores 1.3", "doubt faster_than_the_roof"},
    {"roof_tflops -; roof_others_cores 1.3", ""},
    // Units and labels.
    {"batch 1; accumulate 4", ""},  // tokens and FLOPs are those of all micro-batches
    {"accumulate 4", "invalid unit_mix_up, invalid swapped_label"},
    {"tokens_per_s 5.12", "invalid unit_mix_up"},
    {"median_ms 0.1", "invalid unit_mix_up"},
    {"mode forward", "invalid swapped_label"},  // the FLOPs are those of a whole step
    {"size medium", "invalid swapped_label"},
    {"cell {\"precision\":\"bf16\"}", "invalid swapped_label"},
    // Memory.
    {"peak_bytes 4294967296", "invalid two_graphs"},
    {"peak_bytes 3221229568", "invalid peak_differs"},
    {"major_faults 1000", "invalid host_spill"},
    {"peak_bytes 18253611008; predicted_peak_bytes 18253611008", "invalid host_spill"},
    {"peak_bytes 18253611008; predicted_peak_bytes 18253611008; device cuda:0", ""},
};

TEST(ValidityTest, EachCheckIsSilentOnASoundRowAndLoudWhereItsFaultIsPlanted) {
  for (const Planted& planted : kPlanted) {
    Json row = sound();
    testing::change_cells(row, planted.changes);
    std::string found, texts;
    for (const Verdict& v : judge(ResultRow(row, machine()))) {
      found += fmt::format("{}{} {}", found.empty() ? "" : ", ", name_of(v.severity), v.code);
      texts += v.text + "\n";
    }
    EXPECT_EQ(found, planted.verdicts) << planted.changes;
    EXPECT_THAT(texts, ::testing::HasSubstr(planted.says)) << planted.changes;
  }
}

TEST(ValidityTest, ASteadyNeighbourIsNamedWhereItMayTakeACoreOfOurs) {
  Json row = sound(), environment = machine();
  environment["cores"] = 2;
  environment["threads"] = 2;
  const auto severity = [&] {
    const auto verdicts = judge(ResultRow(row, environment));
    EXPECT_EQ(verdicts.size(), 1u);
    if (verdicts.empty()) return Severity::kInvalid;
    EXPECT_EQ(verdicts[0].code, "others_running");
    return verdicts[0].severity;
  };
  row["others_cores"] = 0.05;  // what any machine does beside
  EXPECT_EQ(summary_of(judge(ResultRow(row, environment))), "ok");
  row["others_cores"] = 0.3;
  EXPECT_EQ(severity(), Severity::kDoubt);
  row["cell"] = Json::Object{{"threads", 1}};  // the other core is free
  EXPECT_EQ(severity(), Severity::kNote);
  row["cell"] = Json::Object{{"threads", 2}};
  row["device"] = "cuda";
  EXPECT_EQ(severity(), Severity::kNote);
}

TEST(ValidityTest, AFlagThatTheRowBeforeLeftIsNoThrottling) {
  Json row = sound();
  row["throttled"] = "sw_power_cap";
  const auto facts = [](int held_ns, int mhz) {
    Json out = Json::object();
    out["power_limited_ns"] = 1000 + held_ns;
    out["heat_limited_ns"] = 0;
    out["sm_clock_mhz"] = mhz;
    return out;
  };
  row["facts_before"] = facts(0, 1980);
  row["facts_after"] = facts(0, 1980);
  EXPECT_EQ(codes_of(row), Codes{});
  row["facts_after"] = facts(5'600'000, 1980);  // limits held it meanwhile
  EXPECT_EQ(codes_of(row), Codes{"throttled"});
  row["facts_after"] = facts(0, 1905);
  ASSERT_EQ(codes_of(row), Codes{"throttled"});
  const std::string text = judge(ResultRow(row, machine()))[0].text;
  EXPECT_NE(text.find("the clock -75 MHz; its time is no less than at full clocks"),
            std::string::npos)
      << text;
  row["facts_after"] = facts(0, 1980);
  row["throttled"] = "hw_slowdown";  // which nothing counts
  EXPECT_EQ(codes_of(row), Codes{"throttled"});
}

TEST(ValidityTest, WhatRunsAgainIsNoSwappedLabel) {
  const auto codes = [](double flops_ratio, const char* recompute) {
    Json row = sound();
    for (const char* column : {"flops", "tflops"})
      row[column] = row[column].as_double() * flops_ratio;
    row["recompute"] = recompute;
    return codes_of(row);
  };
  EXPECT_EQ(codes(1.249, "none"), Codes{"swapped_label"});
  EXPECT_EQ(codes(1.249, "blocks"), Codes());  // most of forward, which is a third of a step
  EXPECT_EQ(codes(1.5, "blocks"), Codes{"swapped_label"});
  EXPECT_EQ(codes(1.5, "nested"), Codes());
  EXPECT_EQ(codes(0.9, "nested"), Codes{"swapped_label"});
}

TEST(ValidityTest, ASpillIsAStatusAndNoTime) {
  Json row = sound();
  const auto status = [&] { return status_of(ResultRow(row, machine())); };
  EXPECT_EQ(status(), "ok");
  row["samples_ms"] = list({60, 90, 60, 90, 60, 90});  // another fault is not this one
  EXPECT_EQ(status(), "ok");
  row = sound();
  row["major_faults"] = 1000;
  EXPECT_EQ(status(), "spill");
  row["status"] = "spill";
  EXPECT_EQ(status(), "spill");
  EXPECT_EQ(codes_of(row), Codes{"host_spill"});  // it keeps its reason
  row["status"] = "oom";
  EXPECT_EQ(status(), "oom");
}

TEST(ValidityTest, WithoutNumbersTheDeviceSaysSoAndNothingElse) {
  Json row = sound();
  row["device"] = "null";
  row["tflops"] = Json();
  row["tokens_per_s"] = Json();
  row["warmup_ms"] = Json::array();
  row["device_busy_ms"] = 1.0;
  EXPECT_EQ(codes_of(row), Codes{"nothing_computed"});
  row["status"] = "oom";
  EXPECT_EQ(codes_of(row), Codes{});
}

TEST(ValidityTest, RecordedStepsThatAreNotTheTimedOnesTakeTheirSharesAway) {
  Json row = sound();
  row["samples_ms"] = Json();  // as a profile: its shares are all that it has
  row["median_ms"] = Json();
  row["device_busy_ms"] = 226.0;  // busy for 226 % of the wall
  row["instrumented_wall_ms"] = 230.0;
  row["recorded_busy_ms"] = list({225, 226, 227});
  EXPECT_EQ(summary_of(judge(ResultRow(row, machine()))), "doubt: recorded_apart");
  row["device_busy_ms"] = 4.9;  // recording "costs" -95 %
  row["instrumented_wall_ms"] = 5.0;
  row["recorded_busy_ms"] = list({4.9, 4.9, 4.9});
  EXPECT_EQ(summary_of(judge(ResultRow(row, machine()))), "doubt: recorded_apart");
  row["device_busy_ms"] = 97.0;
  row["instrumented_wall_ms"] = 100.5;
  row["recorded_busy_ms"] = list({96, 97, 98});
  EXPECT_EQ(codes_of(row), Codes{});
  row["recorded_busy_ms"] = list({97});
  EXPECT_EQ(codes_of(row), Codes{"recorded_unsteady"});
  row["recorded_busy_ms"] = list({60, 97, 98});
  EXPECT_EQ(codes_of(row), Codes{"recorded_unsteady"});
  // Where there are timed samples, they stand.
  row["samples_ms"] = sound()["samples_ms"];
  row["median_ms"] = 100.0;
  EXPECT_EQ(summary_of(judge(ResultRow(row, machine()))), "note: recorded_unsteady");
}

TEST(ValidityTest, KernelsAboveTheirRoofAreDoubted) {
  Json row = sound();
  row["highest_roof_percent"] = 99.0;
  row["highest_roof_kernel"] = "softmax of attn.softmax, forward";
  row["highest_roof_bound"] = "bytes";
  row["highest_roof_bytes"] = 1e9;
  EXPECT_EQ(codes_of(row), Codes{});
  for (const auto& [percent, bound, bytes, verdict] :
       {std::tuple{346.0, "bytes", 1e9, "doubt: above_the_roof"},
        {488.0, "FLOPs", 1e6, "invalid: above_the_roof"},
        {488.0, "bytes", 1e6, "note: above_the_roof"},
        // 168 MB, of which a cache of 64 MiB may save most.
        {133.0, "bytes", 1.68e8, "note: above_the_roof"}}) {
    row["highest_roof_percent"] = percent;
    row["highest_roof_bound"] = bound;
    row["highest_roof_bytes"] = bytes;
    EXPECT_EQ(summary_of(judge(ResultRow(row, machine()))), verdict);
  }
  row["highest_roof_percent"] = 201.0;
  row["highest_roof_bound"] = "FLOPs";
  row["roof_others_cores"] = 1.3;
  EXPECT_EQ(summary_of(judge(ResultRow(row, machine()))), "doubt: above_the_roof");
  row["highest_roof_percent"] = 133.0;
  row["highest_roof_bound"] = "bytes";
  const std::string reason = judge(ResultRow(row, machine()))[0].text;
  EXPECT_NE(reason.find("this row does not tell which"), std::string::npos) << reason;
}

TEST(ValidityTest, NotesNameTheRowAndCountWhatStands) {
  Json bad = sound();
  bad["mode"] = "forward";
  const std::vector<ResultRow> rows{ResultRow(sound(), machine()), ResultRow(bad, machine())};
  const std::vector<std::string> notes = validity_notes(rows);
  ASSERT_EQ(notes.size(), 2u);
  EXPECT_TRUE(notes[0].starts_with("invalid: small context 128 forward fp32 fused: "));
  EXPECT_TRUE(notes[1].starts_with("validity: 1 of 2 measured rows without objection"));
}

TEST(ValidityTest, ObjectionsAreGroupedByTheirReason) {
  std::vector<ResultRow> rows;
  for (const char* mode : {"forward", "inference", "forward-backward"}) {
    Json bad = sound();
    bad["mode"] = mode;
    rows.emplace_back(bad, machine());
  }
  const std::vector<std::vector<Verdict>> verdicts = judge_all(rows);
  std::set<std::pair<std::string, Severity>> reasons;
  for (const auto& of_row : verdicts) {
    for (const Verdict& v : of_row) reasons.emplace(v.code, v.severity);
  }
  const std::vector<std::string> notes = validity_notes(rows);
  EXPECT_EQ(notes.size(), reasons.size() + 1);  // and the count of sound rows
  EXPECT_TRUE(std::ranges::any_of(notes, [](const std::string& note) {
    return note.find(" rows, such as small context 128 ") != std::string::npos;
  })) << notes.front();
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
    for (Mode mode : kAll<Mode>) {
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
