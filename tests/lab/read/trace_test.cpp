// Recordings with known answers: every time below can be added up by hand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "lab/read/file_kind.h"
#include "lab/read/json_stream.h"
#include "lab/read/trace_difference.h"
#include "lab/report/gzip.h"
#include "support/tables.h"
#include "support/temp_folder.h"
#include "support/trace_text.h"

namespace tracestep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::TraceText;

ReadTrace read(const TraceText& text) {
  const TempFolder folder;
  return read_trace_of_file(folder.write("trace.json", text.text()));
}

Table table_named(const std::vector<Table>& tables, const std::string& name) {
  for (const Table& table : tables) {
    if (table.name == name) return table;
  }
  throw std::runtime_error("no table " + name);
}

double cell(const Table& table, const std::string& row, const std::string& column) {
  const Json& value = testing::cell(table, row, column);
  return value.is_null() ? 0.0 : value.as_double();
}

// Two steps of 100 µs: a product, attention, a pointwise kernel that is launched late, the
// optimizer.
TraceText two_steps() {
  TraceText t;
  for (int s = 0; s < 2; ++s) {
    const double at = 1000 + 100.0 * s;
    t.range("ProfilerStep#" + std::to_string(s), at, at + 100);
    t.module("GPT_0", at + 1, at + 20).module("Linear_0", at + 2, at + 8);
    t.op("aten::linear", at + 2, at + 7, 10 + s).op("aten::addmm", at + 3, at + 6, 10 + s);
    t.launched("sm90_xmma_gemm_bf16", at + 4, at + 5, at + 25);
    t.op("aten::_flash_attention_forward", at + 9, at + 12, 20 + s);
    t.launched("flash_fwd_kernel", at + 10, at + 25, at + 35);
    t.gradient("autograd::engine::evaluate_function: AddmmBackward0", at + 44, at + 60, 10 + s);
    t.gradient("aten::mm", at + 45, at + 50, 10 + s);
    t.launched("sm90_xmma_gemm_bf16", at + 46, at + 48, at + 68, 2);
    t.range("Optimizer.step#AdamW.step", at + 62, at + 70);
    t.op("aten::_fused_adamw_", at + 63, at + 69);
    t.launched("multi_tensor_apply_kernel", at + 64, at + 70, at + 80);
  }
  return t;
}

TEST(ReadTraceTest, AStepAddsUpByKindsPassesModulesAndGaps) {
  const ReadTrace trace = read(two_steps());
  const std::vector<Table> tables = trace_tables(trace);
  // From kernel to kernel: 1005 to 1105, and 1105 to the last end, 1180.
  EXPECT_THAT(trace.times.step_ms,
              ElementsAre(::testing::DoubleNear(0.100, 1e-9), ::testing::DoubleNear(0.075, 1e-9)));
  const Table& time = table_named(tables, "time");
  EXPECT_NEAR(cell(time, "matrix products", "mean_ms"), 0.040, 1e-9);
  EXPECT_NEAR(cell(time, "attention", "mean_ms"), 0.010, 1e-9);
  EXPECT_NEAR(cell(time, "the optimizer", "mean_ms"), 0.010, 1e-9);
  EXPECT_NEAR(cell(time, "memory-bound work", "mean_ms"), 0.0, 1e-9);
  // 35 to 48, 68 to 70, and from 80 to the next step's 105 in the first alone.
  EXPECT_NEAR(cell(time, "gaps", "mean_ms"), (0.013 + 0.002) + 0.025 / 2, 1e-9);
  double sum = 0;
  for (const auto& row : time.rows) sum += row[*time.index_of("mean_ms")].as_double();
  EXPECT_NEAR(sum, trace.times.mean_step_ms(), 1e-9);

  const Table& passes = table_named(tables, "passes");
  EXPECT_NEAR(cell(passes, "forward", "mean_ms"), 0.030, 1e-9);
  EXPECT_NEAR(cell(passes, "backward", "mean_ms"), 0.020, 1e-9);
  EXPECT_NEAR(cell(passes, "optimizer", "mean_ms"), 0.010, 1e-9);

  // The gradient belongs to the module of the forward op with its sequence number.
  const Table& modules = table_named(tables, "modules");
  EXPECT_NEAR(cell(modules, "GPT_0/Linear_0", "forward_ms"), 0.020, 1e-9);
  EXPECT_NEAR(cell(modules, "GPT_0/Linear_0", "backward_ms"), 0.020, 1e-9);
  EXPECT_NEAR(cell(modules, "GPT_0", "mean_ms"), 0.050, 1e-9);
  EXPECT_NEAR(cell(modules, "GPT_0", "own_ms"), 0.010, 1e-9);
}

TEST(ReadTraceTest, AGapIsTheHostsUntilItLaunches) {
  const Table& gaps = table_named(trace_tables(read(two_steps())), "gaps");
  // 35 to 46: nothing is recorded to 44, then ops; 46 to 48 it was launched. 68 to 70: launched.
  // 80 to 104: nothing until 100, the step's first op at 102, launched at 104.
  EXPECT_NEAR(cell(gaps, "Python, or nothing recorded", "mean_ms"), 0.009 + 0.022 / 2, 1e-9);
  EXPECT_NEAR(cell(gaps, "the host is in ops and calls", "mean_ms"), 0.002 + 0.002 / 2, 1e-9);
  EXPECT_NEAR(cell(gaps, "the launch itself", "mean_ms"), 0.002 + 0.001 / 2, 1e-9);
  EXPECT_NEAR(cell(gaps, "launched long before, not begun", "mean_ms"), 0.002, 1e-9);
}

TEST(ReadTraceTest, ACollectiveCostsOnlyWhereNothingElseRuns) {
  TraceText t;
  t.range("ProfilerStep#1", 0, 100);
  t.launched("gemm", 1, 10, 50);
  t.launched("ncclDevKernel_AllReduce", 2, 30, 80, 1, 20);
  const ReadTrace trace = read(t);
  const Table& time = table_named(trace_tables(trace), "time");
  EXPECT_NEAR(cell(time, "exposed collectives", "mean_ms"), 0.030, 1e-9);
  EXPECT_NEAR(cell(time, "matrix products", "mean_ms"), 0.040, 1e-9);
  EXPECT_NEAR(trace.times.ms_of(PartLevel::kHidden).front(), 0.020, 1e-9);
}

TEST(ReadTraceTest, WithoutKernelsOpsAreTheWorkWithoutTheOpsInThem) {
  TraceText t;
  t.range("ProfilerStep#1", 0, 100);
  t.op("aten::linear", 10, 60).op("aten::addmm", 20, 50);
  const Table& time = table_named(trace_tables(read(t)), "time");
  EXPECT_NEAR(cell(time, "matrix products", "mean_ms"), 0.050, 1e-9);
  EXPECT_NEAR(cell(time, "outside of ops", "mean_ms"), 0.050, 1e-9);
}

TEST(ReadTraceTest, OpsThatEndBehindTheOneTheyBeganInTakeNothingBeforeIt) {
  TraceText t;
  t.range("ProfilerStep#1", 0, 200);
  t.op("c10d::allreduce_", 10, 20).op("aten::copy_", 15, 100);
  const Table& time = table_named(trace_tables(read(t)), "time");
  EXPECT_NEAR(cell(time, "exposed collectives", "mean_ms"), 0.005, 1e-9);
  EXPECT_TRUE(time.notes.empty());  // of an op, nothing is hidden
}

TEST(ReadTraceTest, KernelsAreOfTheKindThatTheirNamesSay) {
  EXPECT_EQ(work_class_of("attn_fwd"), WorkClass::kAttention);
  EXPECT_EQ(work_class_of("void paged_attention_ll4mi_QKV_mfma16_kernel<0>"),
            WorkClass::kAttention);
  EXPECT_EQ(work_class_of("Cijk_Alik_Bljk_BBS_BH"), WorkClass::kProducts);
  EXPECT_EQ(work_class_of("fmha_cutlassF_bf16_gemm"), WorkClass::kAttention);
  EXPECT_EQ(work_class_of("ncclDevKernel_AllReduce"), WorkClass::kCollectives);
  EXPECT_EQ(work_class_of("triton_poi_fused_addmm_gelu_view_26"), WorkClass::kMemoryBound);
}

TEST(ReadTraceTest, StepsEndWithTheOptimizerWhereNothingElseMarksThem) {
  TraceText t;
  for (int s = 0; s < 3; ++s) {
    t.op("aten::mm", 100.0 * s + 10, 100.0 * s + 40);
    t.range("Optimizer.step#SGD.step", 100.0 * s + 60, 100.0 * s + 90);
  }
  const ReadTrace trace = read(t);
  EXPECT_EQ(trace.times.steps.marks, StepMarks::kOptimizer);
  EXPECT_THAT(trace.times.step_ms,
              ElementsAre(::testing::DoubleNear(0.08, 1e-9), ::testing::DoubleNear(0.1, 1e-9),
                          ::testing::DoubleNear(0.1, 1e-9)));
  TraceText none;
  none.op("aten::mm", 10, 40);
  EXPECT_EQ(read(none).times.steps.marks, StepMarks::kNone);
}

TEST(ReadTraceTest, TheUsersRangesStandForModulesThatTheFileLacks) {
  TraceText t;
  t.range("ProfilerStep#1", 0, 100).range("encoder", 10, 60).range("block 1", 20, 50);
  t.op("aten::mm", 30, 40);
  const Table& modules = table_named(trace_tables(read(t)), "modules");
  EXPECT_EQ(modules.title, "Ranges");
  EXPECT_NEAR(cell(modules, "encoder/block 1", "mean_ms"), 0.010, 1e-9);
}

TEST(ReadTraceTest, KernelsOfAGraphsReplayWithoutTheirLikeAreAPassOfTheirOwn) {
  TraceText t;
  t.range("ProfilerStep#1", 0, 100).call("cudaGraphLaunch", 5, 8, 77);
  t.kernel("gemm", 10, 20, 77).kernel("softmax", 20, 25, 77);
  const ReadTrace trace = read(t);
  const Table& passes = table_named(trace_tables(trace), "passes");
  EXPECT_NEAR(cell(passes, "CUDA graph", "calls"), 2, 1e-9);
  EXPECT_THAT(table_named(trace_tables(trace), "recording").notes,
              ::testing::Contains(HasSubstr("0.0 % of the kernels in replays of CUDA graphs")));
}

// A step by launches, and the same step as a graph: of its kernels one has another name, and one
// the launches lack.
TraceText eager_steps(int first, int count, TraceText t = {}) {
  for (int s = first; s < first + count; ++s) {
    const double at = 1000.0 * s;
    t.range("ProfilerStep#" + std::to_string(s), at, at + 900);
    t.module("GPT_0", at + 1, at + 300);
    for (int layer = 0; layer < 4; ++layer) {
      const double from = at + 10 + 60 * layer;
      t.module("Linear_" + std::to_string(layer), from, from + 40);
      t.op("aten::addmm", from + 1, from + 9).launched("gemm", from + 2, from + 20, from + 30);
      t.op("aten::gelu", from + 11, from + 19);
      t.launched("gelu_" + std::to_string(layer % 2), from + 12, from + 30, from + 40);
    }
  }
  return t;
}

TraceText replayed_steps(int first, int count, TraceText t = {}) {
  for (int s = first; s < first + count; ++s) {
    const double at = 1000.0 * s;
    t.range("ProfilerStep#" + std::to_string(s), at, at + 900);
    t.call("cudaGraphLaunch", at + 5, at + 8, 100 + s);
    t.kernel("Memset (Device)", at + 9, at + 10, 100 + s);
    for (int layer = 0; layer < 4; ++layer) {
      const double from = at + 10 + 20 * layer;
      t.kernel(layer == 2 ? "other_gemm" : "gemm", from, from + 10, 100 + s);
      t.kernel("gelu_" + std::to_string(layer % 2), from + 10, from + 20, 100 + s);
    }
  }
  return t;
}

TEST(ReadTraceTest, KernelsOfAReplayAreNamedByTheOrderOfTheSameStepWithoutTheGraph) {
  const auto expect_named = [](const ReadTrace& trace, double steps, double in_eager) {
    EXPECT_EQ(trace.times.replayed, 18);
    EXPECT_EQ(trace.times.named, 16);  // all but the fills
    const Table& modules = table_named(trace_tables(trace), "modules");
    for (const char* name :
         {"GPT_0/Linear_0", "GPT_0/Linear_1", "GPT_0/Linear_2", "GPT_0/Linear_3"}) {
      EXPECT_NEAR(cell(modules, name, "mean_ms"), 0.020 * (2 + in_eager) / steps, 1e-9) << name;
    }
  };
  expect_named(read(replayed_steps(3, 2, eager_steps(0, 3))), 5, 3);
  const ReadTrace eager = read(eager_steps(0, 2));
  const TempFolder folder;
  const auto path = folder.write("graph.json", replayed_steps(0, 2).text());
  // Modules are the other file's: this one has none.
  const ReadTrace alone = read_trace_of_file(path);
  EXPECT_EQ(alone.times.named, 0);
  expect_named(read_trace_of_file(path, &eager), 2, 0);
}

TEST(ReadTraceTest, StepsAreFoundByWhatRepeats) {
  TraceText t;
  t.op("aten::empty", 1, 2).op("aten::copy_", 3, 4);
  for (int s = 0; s < 5; ++s) {
    const double at = 100.0 * s + 10 + s;
    t.op("aten::embedding", at, at + 5);
    for (int layer = 0; layer < 3; ++layer) {
      const double from = at + 10 + 10 * layer;
      t.op("aten::mm", from, from + 4).op("aten::gelu", from + 5, from + 6);
    }
    t.op("aten::sum", at + 60, at + 65);
  }
  const ReadTrace trace = read(t);
  EXPECT_EQ(trace.times.steps.marks, StepMarks::kRepeats);
  EXPECT_EQ(trace.times.steps.mark, "aten::embedding");
  ASSERT_EQ(trace.times.count(), 5u);
  EXPECT_NEAR(trace.times.step_ms[0], 0.101, 1e-9);
  EXPECT_THAT(table_named(trace_tables(trace), "recording").notes,
              ::testing::Contains(HasSubstr("each begins with aten::embedding")));
}

TEST(ReadTraceTest, FoldersOfTheRecordingMachineAreInNoName) {
  TraceText t;
  t.op("compile /home/somebody/secret/model.py:12 (/opt/x/y.py) Region: 0/0", 10, 20);
  const Table& kernels = table_named(trace_tables(read(t)), "kernels");
  EXPECT_EQ(kernels.rows[0][0].as_string(), "compile model.py:12 (y.py) Region: 0/0");
}

TEST(ReadTraceTest, ACutFileIsReadAsFarAsItGoes) {
  const TempFolder folder;
  const std::string text = two_steps().text();
  const std::string cut = text.substr(0, text.rfind("multi_tensor_apply"));
  const ReadTrace trace = read_trace_of_file(folder.write("cut.json", cut));
  EXPECT_TRUE(trace.facts.is_cut);
  EXPECT_EQ(trace.facts.count(EventKind::kKernel), 7);
  const std::string packed = gzip(text);
  const ReadTrace gz =
      read_trace_of_file(folder.write("cut.json.gz", packed.substr(0, packed.size() - 40)));
  EXPECT_TRUE(gz.facts.is_cut);
}

TEST(ReadTraceTest, GzipOfOneMemberAndOfSeveralIsTheSameText) {
  const TempFolder folder;
  const std::string text = two_steps().text();
  const std::string half = text.substr(0, text.size() / 2), rest = text.substr(text.size() / 2);
  const auto steps = [&](const std::string& name, const std::string& bytes) {
    return read_trace_of_file(folder.write(name, bytes)).times.step_ms;
  };
  const std::vector<double> plain = steps("a.json", text);
  EXPECT_EQ(steps("b.json.gz", gzip(text)), plain);
  EXPECT_EQ(steps("c.json.gz", gzip(half) + gzip(rest)), plain);
}

TEST(ReadTraceTest, TheMarkThatUtf8MayBeginWithIsNoPartOfTheTrace) {
  const TempFolder folder;
  const std::string text = two_steps().text();
  const auto path = folder.write("a.json", "\xef\xbb\xbf" + text);
  EXPECT_EQ(recorded_kind(path), RecordedKind::kTrace);
  EXPECT_EQ(read_trace_of_file(path).times.step_ms,
            read_trace_of_file(folder.write("b.json", text)).times.step_ms);
  EXPECT_THAT(
      message_of(ErrorCode::kInput, [&] { recorded_kind(folder.write("c.json", "\xff\xfe{")); }),
      HasSubstr("UTF-16"));
}

TEST(ReadTraceTest, OldSpellingsOddNumbersAndBrokenEventsDoNoHarm) {
  TraceText t = two_steps();
  t.line(
      R"({"ph": "X", "cat": "Kernel", "name": "old gemm", "pid": "0", "tid": "7", "ts": "1300", "dur": 5})");
  t.line(
      R"({"ph": "X", "cat": "kernel", "name": "no time", "pid": 0, "tid": 7, "ts": "soon", "dur": 5})");
  t.line(R"({"ph": "X", "cat": "kernel", "name": "negative", "ts": 1, "dur": -5})");
  t.line(R"({"ph": "i", "name": "marker", "ts": 1e3})").line("17").line("{\"ph\": }");
  const ReadTrace trace = read(t);
  EXPECT_EQ(trace.facts.count(EventKind::kKernel), 9);
  EXPECT_EQ(trace.facts.unreadable, 4);
  EXPECT_EQ(trace.times.unlinked, 1);
}

TEST(ReadTraceTest, NamesThatATerminalCannotShowAreMadeVisible) {
  TraceText t;
  t.op("aten::mm\\u001b[31m <script>\\n", 10, 20);
  const Table& kernels = table_named(trace_tables(read(t)), "kernels");
  const std::string name = kernels.rows[0][0].as_string();
  EXPECT_EQ(name.find('\x1b'), std::string::npos) << name;
  EXPECT_EQ(name.find('\n'), std::string::npos) << name;
}

TEST(ReadTraceTest, WhatIsNoRecordingIsToldWhatItIs) {
  const TempFolder folder;
  const auto message = [&](std::string_view bytes) {
    return message_of(ErrorCode::kInput, [&] {
      const auto path = folder.write("file", bytes);
      if (recorded_kind(path) == RecordedKind::kTrace) read_trace_of_file(path);
    });
  };
  EXPECT_THAT(message(""), HasSubstr("it is empty"));
  EXPECT_THAT(message("SQLite format 3"), HasSubstr("Nsight Systems"));
  EXPECT_THAT(message("PK\x03\x04"), HasSubstr("zip archive"));
  EXPECT_THAT(message("step,ms\n1,2\n"), HasSubstr("neither JSON nor a pickle"));
  EXPECT_THAT(message("{}"), HasSubstr("no ops, kernels or ranges"));
  EXPECT_THAT(message("[1, 2, 3]"), HasSubstr("no ops, kernels or ranges"));
  EXPECT_THAT(message("{\"traceEvents\" 5}"), HasSubstr("not valid JSON at byte 16"));
  EXPECT_THAT(message("\x1f\x8b\x08 damaged"), HasSubstr("damaged gzip"));
}

TEST(ReadTraceTest, DecimalsAreKeptToTheNanosecond) {
  EXPECT_EQ(json_thousandths("4985021459342.117"), 4985021459342117);
  EXPECT_EQ(json_thousandths("1712195495519689.047"), 1712195495519689047);  // since 1970
  EXPECT_EQ(json_thousandths("12"), 12000);
  EXPECT_EQ(json_thousandths("-0.5"), -500);
  EXPECT_EQ(json_thousandths("1.23456"), 1234);
  EXPECT_EQ(json_thousandths("\"7.25\""), 7250);
  EXPECT_EQ(json_thousandths("1e3"), 1000000);
  EXPECT_EQ(json_thousandths("nan"), std::nullopt);
  EXPECT_EQ(json_thousandths(""), std::nullopt);
  EXPECT_EQ(json_thousandths("999999999999999999999"), std::nullopt);
}

// --- two recordings -----------------------------------------------------------------------------

TraceText steps_of(double product_us, double noise_us, int steps,
                   const std::string& kernel = "gemm_a") {
  TraceText t;
  double at = 0;
  for (int s = 0; s < steps; ++s) {
    const double product = product_us + noise_us * ((s * 7) % 5 - 2);
    t.range("ProfilerStep#" + std::to_string(s), at, at + 200);
    t.module("GPT_0", at, at + 50).op("aten::mm", at + 1, at + 5, s);
    t.launched(kernel, at + 2, at + 10, at + 10 + product);
    t.op("aten::add", at + 6, at + 9);
    t.launched("add_kernel", at + 7, at + 10 + product, at + 40 + product + 0.1 * (s % 3));
    at += 200;
  }
  return t;
}

std::string verdict_of(const Table& changes, const std::string& level, const std::string& name) {
  for (const auto& row : changes.rows) {
    const bool is_named = row[1].is_string() ? row[1].as_string() == name : name.empty();
    if (row[0].as_string() == level && is_named) return row.back().as_string();
  }
  return "no row";
}

TEST(TraceDifferenceTest, AChangeIsFoundWhereItIsAndNowhereElse) {
  const ReadTrace a = read(steps_of(100, 0.2, 20)), b = read(steps_of(104, 0.2, 20));
  const Table changes = difference_table(a, b, {});
  EXPECT_EQ(verdict_of(changes, "kernel", "gemm_a"), "slower");
  EXPECT_EQ(verdict_of(changes, "kind", "matrix products"), "slower");
  EXPECT_EQ(verdict_of(changes, "kernel", "add_kernel"), "same");
  EXPECT_EQ(verdict_of(difference_table(b, a, {}), "kernel", "gemm_a"), "faster");
  const Table none = difference_table(a, read(steps_of(100, 0.2, 20)), {});
  for (const auto& row : none.rows) EXPECT_EQ(row.back().as_string(), "same");
}

// 3 % in each of two modules of 5 % of a step: too little in either, enough in the one around them.
TEST(TraceDifferenceTest, AChangeThatIsSpreadOverAModuleIsFoundInItAsAWhole) {
  const auto steps = [](double linear_us) {
    TraceText t;
    for (int s = 0; s < 20; ++s) {
      const double at = 2000.0 * s, noise = 0.1 * (s % 3);
      t.range("ProfilerStep#" + std::to_string(s), at, at + 2000).module("GPT_0", at + 1, at + 90);
      t.module("MLP_1", at + 2, at + 50).module("Linear_1", at + 3, at + 20);
      t.op("aten::mm", at + 4, at + 10)
          .launched("gemm", at + 5, at + 100, at + 100 + linear_us + noise);
      t.module("Linear_2", at + 21, at + 40);
      t.op("aten::mm", at + 22, at + 30)
          .launched("gemm", at + 23, at + 300, at + 300 + linear_us + noise);
      t.op("aten::add", at + 60, at + 70)
          .launched("add_kernel", at + 61, at + 500, at + 1400 + noise);
    }
    return read(t);
  };
  const ReadTrace a = steps(100), b = steps(103);
  const Table changes = difference_table(a, b, {});
  EXPECT_EQ(verdict_of(changes, "module", "GPT_0/MLP_1/Linear_1"), "same");
  EXPECT_EQ(verdict_of(changes, "whole module", "GPT_0/MLP_1"), "slower");
  const Table none = difference_table(a, steps(100), {});
  EXPECT_EQ(verdict_of(none, "whole module", "GPT_0/MLP_1"), "same");
}

TEST(TraceDifferenceTest, FewStepsTellNothing) {
  const ReadTrace a = read(steps_of(100, 0.2, 3)), b = read(steps_of(150, 0.2, 3));
  EXPECT_EQ(verdict_of(difference_table(a, b, {}), "step", ""), "too few steps");
}

TEST(TraceDifferenceTest, ARenamedKernelIsMatchedByItsPlace) {
  const ReadTrace a = read(steps_of(100, 0.2, 8)), b = read(steps_of(100, 0.2, 8, "gemm_b"));
  const Table changes = difference_table(a, b, {});
  EXPECT_EQ(verdict_of(changes, "kernel", "gemm_a"), "same");
  EXPECT_EQ(verdict_of(changes, "kernel", "gemm_b"), "no row");
}

// --- ranks --------------------------------------------------------------------------------------

TEST(ReadRanksTest, WhoIsShortestInACollectiveCameLast) {
  const auto rank = [](int number, double arrives) {
    TraceText t;
    t.member(fmt::format(R"("distributedInfo": {{"rank": {}, "world_size": 2}})", number));
    t.range("ProfilerStep#1", 0, 200);
    t.launched("gemm", 1, 10, arrives);
    t.launched("ncclDevKernel_AllReduce", 2, arrives, 110);
    return read(t);
  };
  std::vector<ReadTrace> traces;
  traces.push_back(rank(0, 60));
  traces.push_back(rank(1, 100));
  const std::vector<Table> tables = rank_tables(traces);
  ASSERT_EQ(tables.size(), 1u);
  const Table& ranks = tables[0];
  const auto at = [&](std::size_t row, const char* column) {
    return ranks.rows[row][*ranks.index_of(column)].as_double();
  };
  EXPECT_NEAR(at(0, "waits_ms"), 0.040, 1e-9);
  EXPECT_NEAR(at(1, "waits_ms"), 0.0, 1e-9);
  EXPECT_NEAR(at(1, "last_percent"), 100.0, 1e-9);
}

}  // namespace
}  // namespace tracestep
