// Recordings beside our own program of a model, whose sums are known.
#include "lab/read/beside.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lab/predict/devices.h"
#include "lab/snapshots/snapshot.h"
#include "support/temp_folder.h"
#include "support/trace_text.h"

namespace tracestep {
namespace {

using testing::TraceText;

constexpr std::int64_t kContext = 256;

OurStep two_layers() {
  const RunSpec run{.model = {.vocab = 50, .d_model = 32, .d_ff = 64, .layers = 2, .heads = 2},
                    .shape = {.batch = 2, .context = kContext}};
  OurStep out = our_step(run, {});
  const auto model = make_time_model(*known_device("h100"));
  out.time = predict_program(run, out.memory.program, {}, {.model = *model});
  return out;
}

// A step with a product and a softmax in each of two layers' attention, and the optimizer.
TraceText naive_step() {
  TraceText t;
  t.range("ProfilerStep#1", 0, 500).module("AttentionModel_0", 1, 200);
  for (int layer = 0; layer < 2; ++layer) {
    const double at = 10 + 100.0 * layer;
    t.module("CausalAttention_" + std::to_string(layer), at, at + 40);
    t.op("aten::bmm", at + 1, at + 9).launched("sm90_gemm", at + 2, at + 10, at + 30);
    t.op("aten::_softmax", at + 11, at + 19);
    t.launched("cunn_SoftMaxForward", at + 12, at + 30, at + 35);
  }
  t.op("aten::add", 160, 170).launched("add_kernel", 161, 170, 180);
  t.range("Optimizer.step#AdamW.step", 210, 300);
  for (int i = 0; i < 3; ++i) t.launched("adam", 211 + i, 250 + 10 * i, 255 + 10 * i);
  return t;
}

Table table_named(const std::vector<Table>& tables, const std::string& name) {
  for (const Table& table : tables) {
    if (table.name == name) return table;
  }
  throw std::runtime_error("no table " + name);
}

std::vector<Table> beside(const TraceText& text) {
  const TempFolder folder;
  return beside_tables(read_trace_of_file(folder.write("trace.json", text.text())), two_layers());
}

double value(const Table& table, const std::vector<Json>& row, const char* column) {
  const Json& cell = row[*table.index_of(column)];
  return cell.is_null() ? 0.0 : cell.as_double();
}

TEST(BesideTest, KindsOfBothAddUpToTheirSteps) {
  const Table table = table_named(beside(naive_step()), "beside");
  for (const char* side : {"theirs_ms", "ours_ms", "theirs_calls", "ours_calls"}) {
    double whole = 0, sum = 0;
    for (const auto& row : table.rows) {
      if (row[0].as_string() == "step") whole = value(table, row, side);
      if (row[0].as_string() == "kind") sum += value(table, row, side);
    }
    EXPECT_GT(whole, 0) << side;
    EXPECT_NEAR(sum, whole, 1e-9 * whole) << side;
  }
}

TEST(BesideTest, ModulesAreThoseWithTheSameWordsWithinTheModel) {
  const Table table = table_named(beside(naive_step()), "beside");
  std::vector<std::string> modules;
  for (const auto& row : table.rows) {
    if (row[0].as_string() != "module") continue;
    modules.push_back(row[1].as_string());
    EXPECT_NEAR(value(table, row, "theirs_ms"), 0.050, 1e-9);
    EXPECT_GT(value(table, row, "ours_ms"), 0);
  }
  EXPECT_THAT(modules, ::testing::ElementsAre("attention"));
}

TEST(BesideTest, AttentionThatKeepsItsScoresIsToldByASoftmaxInEachLayer) {
  const Table naive = table_named(beside(naive_step()), "beside_step");
  EXPECT_EQ(value(naive, naive.rows[0], "softmax_calls"), 2);
  EXPECT_GT(naive.rows[0][*naive.index_of("scores_bytes")].as_int(), 0);
  TraceText flash = naive_step();
  flash.op("aten::_flash_attention_forward", 180, 185);
  flash.launched("flash_fwd_kernel", 181, 190, 200);
  const Table none = table_named(beside(flash), "beside_step");
  EXPECT_TRUE(none.rows[0][*none.index_of("softmax_calls")].is_null());
}

TEST(BesideTest, TensorsOfScoresAreCountedAtTheSnapshotsPeak) {
  constexpr std::int64_t kScores = 2 * 2 * kContext * kContext * 4;
  MemorySnapshot s;
  s.segments = {{.address = 0x10000,
                 .bytes = 8 * kScores,
                 .blocks = {{0x10000, 8 * kScores, 8 * kScores, false, 0}}}};
  for (int i = 0; i < 3; ++i) {
    s.events.push_back({.action = "alloc", .address = 0x10000 + i * kScores, .bytes = kScores});
  }
  for (int i = 0; i < 3; ++i) {
    s.events.push_back(
        {.action = "free_completed", .address = 0x10000 + i * kScores, .bytes = kScores});
  }
  const TempFolder folder;
  const SnapshotFacts facts = read_snapshot_facts(folder.write("s.pickle", pickle_of(s)));
  const OurStep ours = two_layers();
  const Table table = beside_table(facts, ours);
  EXPECT_EQ(table.rows[0][1].as_int(), 3 * kScores);
  EXPECT_EQ(table.rows[0][2].as_int(), ours.memory.predicted_peak_bytes);
  EXPECT_EQ(table.rows[1][1].as_int(), 3 * kScores);
  EXPECT_EQ(table.rows[1][4].as_int(), 3);
  EXPECT_GT(table.rows[1][5].as_int(), 0);  // naive attention keeps some, too
}

}  // namespace
}  // namespace tracestep
