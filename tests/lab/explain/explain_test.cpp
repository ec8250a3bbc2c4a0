// Every topic explains itself with numbers that follow from the model asked for.
#include "lab/explain/explain.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "base/error.h"
#include "lab/predict/devices.h"
#include "ops/functions.h"
#include "support/paths.h"

namespace tracestep {
namespace {

// wall 10 ms of which kernels work for `busy_ms`, eight samples with a median of 10.
ResultRow row_with(double busy_ms) {
  Json cells = Json::object();
  cells["size"] = "tiny";
  cells["context"] = 8;
  cells["mode"] = "step";
  cells["device"] = "cpu";
  cells["status"] = "ok";
  Json samples = Json::array(), warm = Json::array();
  for (double ms : {9.0, 10.0, 10.0, 10.0, 10.0, 10.0, 10.0, 11.0}) samples.push_back(ms);
  warm.push_back(90.0);
  cells["samples_ms"] = samples;
  cells["warmup_ms"] = warm;
  cells["median_ms"] = 10.0;
  cells["wall_ms"] = 10.0;
  cells["instrumented_wall_ms"] = 10.0;
  cells["issue_ms"] = 2.0;
  cells["device_span_ms"] = 9.5;
  cells["device_busy_ms"] = busy_ms;
  cells["instrumented_wall_ms"] = 10.5;
  cells["launches"] = 100;
  cells["flops"] = 4e10;
  cells["tflops"] = 4.0;
  cells["roof_tflops"] = 8.0;
  return ResultRow(std::move(cells));
}

ResultRow row() {
  return row_with(4.0);
}

class ExplainTest : public ::testing::Test {
 protected:
  void SetUp() override { ops::register_all(); }

  ExplainInput input() const {
    return {
        .model = {.name = "own", .vocab = 11, .d_model = 12, .d_ff = 20, .layers = 2, .heads = 3},
        .shape = {.batch = 5, .context = 7},
        .row = row};
  }

  // The value of the row called `what` in the first table of `topic`.
  double value(std::string_view topic, std::string_view what) const {
    const Table table = explain(topic_named(topic), input()).front();
    for (const auto& line : table.rows) {
      if (line[0].as_string() == what) return line[4].as_double();
    }
    ADD_FAILURE() << topic << " has no line \"" << what << "\"";
    return NAN;
  }
};

TEST_F(ExplainTest, ATopicThatReadsARowSaysSo) {
  for (const Topic& topic : topics()) {
    bool has_read = false;
    ExplainInput seen = input();
    seen.row = [&] {
      has_read = true;
      return row();
    };
    explain(topic, seen);
    EXPECT_EQ(topic.reads_row, has_read) << topic.name;
  }
}

TEST_F(ExplainTest, EveryTopicHasNumbersTrapsAndATitle) {
  std::set<std::string_view> names;
  for (const Topic& topic : topics()) {
    EXPECT_TRUE(names.insert(topic.name).second) << topic.name;
    const std::vector<Table> tables = explain(topic, input());
    ASSERT_FALSE(tables.empty()) << topic.name;
    EXPECT_GE(tables[0].rows.size(), 2u) << topic.name;
    const pages::Page page = pages::parse(topic.page).at(0);
    EXPECT_EQ(page.head[0], topic.name);
    EXPECT_TRUE(page.text("Question").ends_with('?')) << topic.name;
    EXPECT_NE(tables[0].title.find(page.text("Question")), std::string::npos);
    int traps = 0;
    for (const auto& [label, text] : page.labelled) {
      if (label != "Trap") continue;
      EXPECT_EQ(std::ranges::count(tables[0].notes, "trap: " + text), 1);
      ++traps;
    }
    EXPECT_GE(traps, 2) << topic.name;
  }
  EXPECT_EQ(topic_table().rows.size(), topics().size());
  for (const auto& page :
       std::filesystem::directory_iterator(testing::source_folder() / "src/lab/explain/pages")) {
    const std::string name = page.path().stem();
    EXPECT_TRUE(names.contains(name)) << "no row of lab/explain/explain.cpp has the page " << name;
  }
}

TEST_F(ExplainTest, NumbersFollowTheModel) {
  // B = 5, T = 7, C = 12, F = 20, L = 2, H = 3, V = 11.
  EXPECT_EQ(value("residual-stream", "one tensor"), 4 * 5 * 7 * 12);
  EXPECT_EQ(value("residual-stream", "scores of one layer"), 4 * 5 * 3 * 7 * 7);
  EXPECT_EQ(value("flops", "scores and values"), 4.0 * 5 * 7 * 7 * 12 * 2);
  EXPECT_EQ(value("flops", "forward, all of them"), value("flops", "forward, by the program"));
  EXPECT_EQ(value("flops", "step over forward"), 3);
  // Seven products in each of two layers: the gradient of each weight goes, six small ones come.
  // The head's gradient goes as well, and those of what the first q, k and v read.
  EXPECT_EQ(value("lora", "products with adapters") - value("lora", "products in a full step"),
            (6 * 7 - 7) * 2 - 1 - 2 * 3);
  EXPECT_EQ(value("gemm-share", "products of a forward pass"), 9 * 2 + 1);
  EXPECT_EQ(value("gemm-share", "inference: kernels that are products"), 9 * 2 + 1);
  EXPECT_EQ(value("attention-memory", "the well-known case"), 8.0 * 1024 * 1024 * 1024);
  const double p = 2 * 11 * 12 + 2 * (4 * 12 * 12 + 3 * 12 * 20 + 2 * 12) + 12;
  EXPECT_EQ(value("peak-memory", "weights"), 4 * p);
  EXPECT_EQ(value("adamw", "states"), 8 * p);
}

TEST_F(ExplainTest, WhatRanksSendAndHoldIsThatOfTheHandouts) {
  const double p = 2 * 11 * 12 + 2 * (4 * 12 * 12 + 3 * 12 * 20 + 2 * 12) + 12;
  EXPECT_EQ(value("data-parallel", "tensors with a gradient"), 9 * 2 + 3);
  EXPECT_EQ(value("data-parallel", "2 ranks: each receives for their sum"), 4 * p);
  EXPECT_EQ(value("data-parallel", "2 ranks: shard=1 saves on each"), 4 * p);
  EXPECT_EQ(value("data-parallel", "2 ranks: shard=3 saves on each"), 8 * p);
  EXPECT_EQ(value("data-parallel", "64 ranks: if each sent all it has to every other"), 63 * 4 * p);
  // A bucket of s/n bytes: n buckets cost n calls and the time of the last one.
  const double bytes_per_s = 450e9, call_s = 10e-6;
  const double buckets = 4 * p / value("data-parallel", "best bucket, by the example");
  EXPECT_NEAR(value("data-parallel", "calls and the last bucket then take"),
              1e3 * (4 * p / (buckets * bytes_per_s) + buckets * call_s), 1e-9);
  EXPECT_EQ(value("parallel-limits", "126 blocks of two products: parameters"), 219848638464.0);
  EXPECT_EQ(value("parallel-limits", "126 blocks: cards of 80 GB that hold that"), 44);
  EXPECT_EQ(value("parallel-limits", "126 blocks: saved for backward per token, bf16"), 17547264);
  EXPECT_NEAR(value("parallel-limits", "data parallel: ranks whose sum backward hides"),
              1 + 5 * 7 * bytes_per_s / 989e12, 1e-12);
  // A layer on 8 ranks: 6·B·T·C·F/N FLOPs, 6·C·F·(N−1)/N bytes.
  EXPECT_EQ(value("parallel-limits", "a layer on 8 ranks, fully sharded: forward, FLOPs of each"),
            6 * 5 * 7 * 12 * 20 / 8.0);
  EXPECT_EQ(value("parallel-limits", "forward, bytes that each gets"), 6 * 12 * 20 * 7 / 8.0);
  EXPECT_EQ(value("parallel-limits", "backward, its link: weights again, gradients"),
            value("parallel-limits", "data parallel: backward, the sum of gradients on its link"));
  EXPECT_EQ(value("parallel-limits", "126 blocks: cards of 95 GB, each with its shard"), 38);
  // 4·b·D·F/C = 4·D·F/(4·2·W) + 16·b·D/W, with the rates of a TPU v5p.
  const double b = value("parallel-limits",
                         "its tokens of a device, from which products take longer, links in turn");
  const double d = 16384, f = 53248, w = 18e10;
  EXPECT_NEAR(4 * b * d * f / 4.6e14, d * f / (2 * w) + 16 * b * d / w, 1e-12);
}

TEST_F(ExplainTest, RanksAndTheirRatesAreArguments) {
  ExplainInput asked = input();
  asked.ranks = {.ranks = 4, .device = known_device("v100 16gb"), .link_gb_s = 12};
  const Table table = explain(topic_named("parallel-limits"), asked).front();
  const auto value_of = [&](const std::string& what) {
    for (const auto& row : table.rows) {
      if (row[0].as_string() == what) return row[4].as_double();
    }
    return -1.0;
  };
  EXPECT_EQ(value_of("FLOPs of a rank while its links move a byte"), 125e12 / 12e9);
  EXPECT_EQ(value_of("a layer on 4 ranks, fully sharded: forward, FLOPs of each"),
            6 * 5 * 7 * 12 * 20 / 4.0);
  EXPECT_NE(table.notes.front().find("125 TFLOP/s (fp16 of V100 SXM2 16 GB"), std::string::npos);
  EXPECT_NE(table.notes.front().find("12 GB/s (as given)"), std::string::npos);
}

TEST_F(ExplainTest, WhatFusingSavesIsCountedInPrograms) {
  constexpr double kBtf = 5 * 7 * 20;
  EXPECT_EQ(value("fusion", "SwiGLU of a layer in parts: sigmoid, ·, ·"), 32 * kBtf);
  EXPECT_EQ(value("fusion", "the same as one kernel: two read, one written"), 12 * kBtf);
  const double parts = value("fusion", "a step in parts: kernels");
  double saved = 0;
  for (Composite composite : kNamedComposites) {
    const std::string name(name_of(composite));
    const double launches = value("fusion", name + " as one kernel: kernels saved");
    EXPECT_GT(launches, 0) << name;
    EXPECT_GT(value("fusion", name + " as one kernel: not moved"), 0) << name;
    saved += launches;
  }
  EXPECT_EQ(value("fusion", "all of them: kernels"), parts - saved);
  EXPECT_LT(value("fusion", "compiled for a GPU: kernels"), parts - saved);
  EXPECT_LT(value("fusion", "of these, by what no fusion removes"),
            value("fusion", "compiled for a GPU: moved"));
  EXPECT_EQ(value("fusion", "a graph saves at most"), 6);
}

TEST_F(ExplainTest, NumbersOfARunAreItsOwn) {
  EXPECT_EQ(value("warm-up", "first over median"), 9);
  EXPECT_NEAR(value("warm-up", "mean with warm-up steps in it"), 170.0 / 9, 1e-12);
  EXPECT_EQ(value("launch-bound", "share in which kernels work"), 0.4);
  EXPECT_EQ(value("launch-bound", "the host's part of each"), 0.06);
  EXPECT_EQ(value("synchronisation", "what a clock without a wait would show"), 0.2);
  EXPECT_EQ(value("profiler-overhead", "cost"), 1.05);
  EXPECT_EQ(value("roofline", "share of the measured roof"), 0.5);
  EXPECT_NEAR(value("std", "sample standard deviation"), std::sqrt(2.0 / 7), 1e-12);
}

TEST_F(ExplainTest, WhatTheCheckerSaysOfTheRowStandsBesideItsNumbers) {
  // Kernels "work" for 5.824 times the wall: the row is not what it says.
  ExplainInput with_broken = input();
  with_broken.row = [] { return row_with(58.24); };
  const Table sound = explain(topic_named("launch-bound"), input()).front();
  const Table doubted = explain(topic_named("launch-bound"), with_broken).front();
  const auto is_invalid = [](const std::string& note) {
    return note.starts_with("invalid: tiny context 8 step: ") &&
           note.ends_with("(missing_synchronization)");
  };
  EXPECT_EQ(std::ranges::count_if(sound.notes, is_invalid), 0);
  EXPECT_EQ(std::ranges::count_if(doubted.notes, is_invalid), 1);
}

TEST_F(ExplainTest, NumberFormatsAreTheTypesOwn) {
  EXPECT_EQ(value("loss-scaling", "least number of fp16"), 0x1p-24);
  EXPECT_EQ(value("loss-scaling", "half of it becomes"), 0);
  EXPECT_EQ(value("loss-scaling", "a gradient in fp16"), 0);
  EXPECT_NEAR(value("loss-scaling", "and taken back in fp32"), 2e-8, 1e-11);
  EXPECT_EQ(value("mixed-precision", "spacing of bf16 at 1"), 0x1p-7);
  EXPECT_EQ(value("rmsnorm", "255² in fp16"), 65024);
  EXPECT_EQ(value("accumulation", "5: bf16 + bf16"), 4.0);
  // A running sum is the sum.
  EXPECT_NEAR(value("flash-attention", "all at once"),
              value("flash-attention", "after a score of 2"), 1e-12);
}

// By a slip, by a part of the name, by a word of its page; else the list is named.
TEST_F(ExplainTest, AnUnknownTopicNamesTheNearest) {
  for (const auto& [name, said] :
       {std::pair{"sofmax", "did you mean softmax?"},
        {"memory", "did you mean peak-memory?"},
        {"mfu", "did you mean flops?"},
        {"SwiGLU", "did you mean "},
        {"zzz", "there is no topic \"zzz\"; tracestep explain lists the topics"}}) {
    try {
      topic_named(name);
      FAIL() << name;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::kUsage);
      EXPECT_NE(std::string(e.what()).find(said), std::string::npos) << e.what();
    }
  }
}

TEST_F(ExplainTest, NumbersThatWereMeasuredNowSaySo) {
  ExplainInput now = input();
  now.is_measured_now = true;
  const std::string file = explain(topic_named("std"), input()).front().rows[0][0].as_string(),
                    measured = explain(topic_named("std"), now).front().rows[0][0].as_string();
  EXPECT_EQ(measured, file + " (measured now)");
}

// 468,122,075,136 of 378,733,068,288 FLOPs: head, loss and each block's last product run once.
TEST_F(ExplainTest, TheFlopsOfBlocksComputedAgainAreThoseOfTheirProgram) {
  const std::vector<Table> tables =
      explain(topic_named("checkpointing"),
              {.model = preset("small"), .shape = {.batch = 4, .context = 128}});
  const auto line = std::ranges::find_if(tables[0].rows, [](const auto& row) {
    return row[0].as_string().starts_with("FLOPs of a step");
  });
  ASSERT_NE(line, tables[0].rows.end());
  EXPECT_NEAR((*line)[4].as_double(), 1.236, 0.0005);
}

TEST_F(ExplainTest, SumsAreShownWithTheDigitsInWhichTheyErr) {
  const std::vector<Table> tables = explain(topic_named("accumulation"), input());
  std::set<std::string> shown;
  for (const auto& row : tables[0].rows) shown.insert(row[3].as_string());
  EXPECT_TRUE(shown.contains("10.000134")) << "in float32";
  EXPECT_FALSE(shown.contains("10")) << "which no sum is";
}

// Problem gradient_checkpointing of the 2026 handout, and its demo of two groups of two blocks.
TEST_F(ExplainTest, CheckpointingHasTheHandoutsOptimumAndItsDemoBesideOurPrograms) {
  constexpr double kMiB = 1 << 20;
  const std::vector<Table> tables =
      explain(topic_named("checkpointing"),
              {.model = preset("xl-2026"), .shape = {.batch = 4, .context = 2048}});
  const auto value = [&](std::string_view what) {
    for (const auto& line : tables[0].rows) {
      if (line[0].as_string() == what) return line[4].as_double();
    }
    ADD_FAILURE() << what;
    return 0.0;
  };
  EXPECT_NEAR(value("the handout's block, groups of 1") / kMiB, 6211, 0.5);
  EXPECT_NEAR(value("the handout's block, groups of 2") / kMiB, 8583, 0.5);
  EXPECT_GT(value("the handout's block, groups of 4"), value("the handout's block, groups of 2"));
  EXPECT_EQ(value("4 such blocks, two groups of two"), 160 * kMiB);
  EXPECT_EQ(value("one block's input"), 80 * kMiB);
  EXPECT_EQ(value("the best of these"), 1);
  // By programs: what is held, in blocks' inputs, and how much more is computed.
  const Table& forms = tables.at(1);
  const auto cell = [&](std::string_view choice, std::string_view column) {
    const auto at = std::ranges::find(forms.columns, column, &Column::name) - forms.columns.begin();
    for (const auto& row : forms.rows) {
      if (row[0].as_string() == choice) return row[static_cast<std::size_t>(at)].as_double();
    }
    ADD_FAILURE() << choice;
    return 0.0;
  };
  EXPECT_EQ(cell("none", "held_bytes"), 0);
  EXPECT_EQ(cell("none", "flops_ratio"), 1);
  EXPECT_EQ(cell("blocks", "held_bytes"), 32 * 80 * kMiB);
  EXPECT_EQ(cell("every=2", "held_bytes"), 16 * 80 * kMiB);
  EXPECT_EQ(cell("nested", "held_bytes"), 80 * kMiB);
  EXPECT_GT(cell("blocks", "flops_ratio"), 1.25);
  EXPECT_LT(cell("blocks", "flops_ratio"), 4.0 / 3.0);
  EXPECT_GT(cell("nested", "flops_ratio"), 1.8);
  EXPECT_EQ(value("FLOPs of a step that computes its blocks again"), cell("blocks", "flops_ratio"));
  EXPECT_LT(cell("blocks", "peak_bytes"), cell("every=4", "peak_bytes"));
  EXPECT_LT(cell("every=4", "peak_bytes"), cell("none", "peak_bytes"));
}

}  // namespace
}  // namespace tracestep
