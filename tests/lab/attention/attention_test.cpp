// The attention benchmark: its parts, its bytes against formulas worked out by hand, its fit.
#include "lab/attention/run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "analysis/saved_ledger.h"
#include "backends/null/null_device.h"
#include "base/error.h"
#include "lab/attention/tables.h"
#include "ops/functions.h"
#include "spec/step_program.h"
#include "support/backends.h"
#include "support/tables.h"

namespace tracestep {
namespace {

using testing::cell;

DeviceFactory planning(std::int64_t limit = 0) {
  return [limit](const RunSpec&) { return make_null_device({.memory_limit = limit}); };
}

AttentionSpec spec_of(std::int64_t context, std::int64_t width, const char* saved = "weights") {
  return {.run = {.shape = {.batch = 2, .context = context}},
          .width = width,
          .saved = parse_saved("--saved", saved),
          .protocol = {.warmup = 1, .steps = 3, .max_seconds = 0}};
}

// q, k, v, the gradient of y, and y itself.
std::int64_t five_tensors(const AttentionSpec& s) {
  return 5 * s.run.shape.batch * s.run.shape.context * s.width * 4;
}

TEST(AttentionTest, OneTwoOrThreeSquareTensorsStandBeforeBackward) {
  for (const auto& [saved, count] : {std::pair{"weights", 1},
                                     {"scores+weights", 2},
                                     {"exp+weights", 2},
                                     {"scores+exp+weights", 3}}) {
    AttentionSpec spec = spec_of(64, 8, saved);
    spec.causal = false;
    EXPECT_EQ(spec.saved.count(), count);
    const AttentionResult r = measure_attention(planning(), spec);
    ASSERT_EQ(r.status, Status::kOk) << saved;
    const std::int64_t square = spec.run.shape.batch * 64 * 64 * 4;
    EXPECT_EQ(r.saved_bytes, count * square) << saved;
    // In parts, softmax also saves the sum of each row.
    const std::int64_t sums = spec.saved.exp ? spec.run.shape.batch * 64 * 4 : 0;
    EXPECT_EQ(r.before_backward_bytes, five_tensors(spec) + count * square + sums) << saved;
  }
}

TEST(AttentionTest, EveryBackEndHoldsWhatWasPredicted) {
  for (const std::string& name : testing::backend_names()) {
    for (const char* saved : {"weights", "scores+weights", "scores+exp+weights"}) {
      for (bool causal : {true, false}) {
        AttentionSpec spec = spec_of(48, 16, saved);
        spec.causal = causal;
        const AttentionResult r = measure_attention(
            [&](const RunSpec&) { return testing::backend_named(name).make({}); }, spec);
        ASSERT_EQ(r.status, Status::kOk) << r.detail;
        EXPECT_EQ(r.before_backward_bytes, r.predicted_before_backward_bytes) << saved;
        EXPECT_EQ(r.peak_bytes, r.predicted_peak_bytes) << saved;
        EXPECT_EQ(r.forward.samples_ms.size(), 3u);
        EXPECT_EQ(r.backward.samples_ms.size(), 3u);
        EXPECT_EQ(r.forward.warmup_ms.size(), 1u);
        for (double ms : r.backward.samples_ms) EXPECT_GT(ms, 0);
        EXPECT_GT(r.forward.busy_ms, 0);
        EXPECT_GT(r.backward.busy_ms, 0);
      }
    }
  }
}

TEST(AttentionTest, BackwardHasTwiceTheProductsOfForward) {
  const AttentionSpec spec = spec_of(32, 8);
  const AttentionResult r = measure_attention(planning(), spec);
  // Two products of 2·B·T²·D forward, four backward.
  EXPECT_EQ(r.forward.flops, 2 * 2 * 2 * 32 * 32 * 8);
  EXPECT_EQ(r.backward.flops, 2 * r.forward.flops);
}

AttentionSpec flash_of(std::int64_t context, std::int64_t width, const char* precision = "fp32") {
  AttentionSpec spec = spec_of(context, width);
  spec.run.attention = AttentionForm::kFlash;
  spec.run.precision = parse_precision("test", precision);
  return spec;
}

TEST(FlashAttentionBytesTest, OneNumberForEachRowIsSavedBesideTheTensors) {
  const auto device = planning()({});
  const AttentionSpec spec = flash_of(128, 64);
  const PartsProgram p = attention_program(spec, *device);
  std::vector<Shape> saved;
  for (const LedgerItem& item : saved_ledger(p.program)) {
    saved.push_back(p.program.type(item.value).shape);
  }
  // q, k and v are parameters here, which a ledger does not list.
  EXPECT_THAT(saved, ::testing::UnorderedElementsAre(Shape{2, 128, 64}, Shape{2, 128}));
}

TEST(FlashAttentionBytesTest, EveryBackEndHoldsWhatWasPredictedAndItGrowsWithTheContextAlone) {
  for (const std::string& name : testing::backend_names()) {
    for (const char* precision : {"fp32", "bf16-pure", "bf16"}) {
      std::vector<double> contexts, before, peak;
      for (std::int64_t context : {64, 128, 256, 512}) {
        const AttentionSpec spec = flash_of(context, 16, precision);
        const AttentionResult r = measure_attention(
            [&](const RunSpec&) { return testing::backend_named(name).make({}); }, spec);
        ASSERT_EQ(r.status, Status::kOk) << r.detail;
        EXPECT_EQ(r.before_backward_bytes, r.predicted_before_backward_bytes) << precision;
        EXPECT_EQ(r.peak_bytes, r.predicted_peak_bytes) << precision;
        EXPECT_EQ(r.saved_bytes, 0);
        EXPECT_EQ(r.whole.samples_ms.size(), 3u);
        if (std::string_view(precision) == "fp32") {
          EXPECT_EQ(r.before_backward_bytes,
                    five_tensors(spec) + spec.run.shape.batch * context * 4);
        }
        contexts.push_back(static_cast<double>(context));
        before.push_back(static_cast<double>(r.before_backward_bytes));
        peak.push_back(static_cast<double>(r.peak_bytes));
      }
      EXPECT_NEAR(fit_quadratic(contexts, before).a, 0.0, 1e-9) << precision;
      // Workspaces come in whole blocks; a matrix of scores would be 4 and more.
      EXPECT_NEAR(fit_quadratic(contexts, peak).a, 0.0, 0.1) << name << " " << precision;
    }
  }
}

TEST(FlashAttentionBytesTest, ACausalCallCountsHalfAndBackwardTwoAndAHalfTimes) {
  const AttentionResult naive = measure_attention(planning(), spec_of(32, 8));
  const AttentionResult flash = measure_attention(planning(), flash_of(32, 8));
  EXPECT_EQ(2 * flash.forward.flops, naive.forward.flops);
  EXPECT_EQ(2 * flash.backward.flops, 5 * flash.forward.flops);
  EXPECT_EQ(flash.whole.flops, flash.forward.flops + flash.backward.flops);
}

// The step of a whole model: in each layer one tensor of B·H·T numbers, and none of B·H·T².
TEST(FlashAttentionBytesTest, AModelSavesNothingOfTheSizeOfItsScores) {
  RunSpec step{.model = {.vocab = 31, .d_model = 24, .d_ff = 40, .layers = 3, .heads = 2},
               .shape = {.batch = 2, .context = 37}};
  step.attention = AttentionForm::kFlash;
  for (Granularity ops : {Granularity::kFused, Granularity::kPrimitive}) {
    step.ops = ops;
    const Program program = step_program(step);
    int rows = 0;
    for (const LedgerItem& item : saved_ledger(program)) {
      const Shape& shape = program.type(item.value).shape;
      EXPECT_NE(shape.product(), 2 * 2 * 37 * 37) << program.node(item.producer).op->name;
      rows += shape == Shape{2, 2, 37} ? 1 : 0;
    }
    EXPECT_EQ(rows, 3) << name_of(ops);
    std::int64_t kernels = 0;
    for (const Node& node : program.nodes) {
      kernels += node.op->kernel_class == KernelClass::kAttention ? 1 : 0;
    }
    EXPECT_EQ(kernels, 6) << name_of(ops);
  }
}

TEST(AttentionTest, TheLossIsInNeitherPart) {
  const auto device = planning()({});
  const PartsProgram p = attention_program(spec_of(32, 8), *device);
  int outside = 0;
  for (std::size_t i = 0; i < p.program.nodes.size(); ++i) {
    const Node& node = p.program.nodes[i];
    const auto id = static_cast<NodeId>(i);
    if (node.op->is_view()) continue;
    const bool is_loss = node.origin().path == "loss";
    if (p.is_forward(id)) {
      EXPECT_EQ(node.origin().phase, Phase::kForward);
      EXPECT_FALSE(is_loss);
    } else if (p.is_backward(id)) {
      EXPECT_EQ(node.origin().phase, Phase::kBackward);
      EXPECT_FALSE(is_loss) << node.op->name;
    } else {
      EXPECT_TRUE(is_loss) << node.op->name;
      ++outside;
    }
  }
  EXPECT_GE(outside, 2);  // y·upstream and its sum
}

TEST(AttentionTest, ALimitAtThePeakPassesAndOneByteLessFails) {
  const AttentionSpec spec = spec_of(64, 8);
  const AttentionResult fits = measure_attention(planning(), spec);
  EXPECT_EQ(measure_attention(planning(fits.peak_bytes), spec).status, Status::kOk);
  const AttentionResult tight = measure_attention(planning(fits.peak_bytes - 1), spec);
  EXPECT_EQ(tight.status, Status::kOutOfMemory);
  EXPECT_EQ(tight.predicted_peak_bytes, fits.peak_bytes);
  EXPECT_TRUE(tight.forward.samples_ms.empty());
  EXPECT_FALSE(tight.detail.empty());
}

TEST(AttentionTest, ACellThatIsPredictedToExceedTheLimitIsNotBegun) {
  AttentionSpec spec = spec_of(64, 8);
  const std::int64_t peak = measure_attention(planning(), spec).predicted_peak_bytes;
  spec.run.place.memory_limit_bytes = peak;
  EXPECT_EQ(measure_attention(planning(), spec).status, Status::kOk);
  // These devices have no limit of their own: begun, the cell would succeed.
  spec.run.place.memory_limit_bytes = peak - 1;
  const AttentionResult refused = measure_attention(planning(), spec);
  EXPECT_EQ(refused.status, Status::kOutOfMemory);
  EXPECT_EQ(refused.predicted_peak_bytes, peak);
  EXPECT_THAT(refused.detail, ::testing::HasSubstr("not begun: the predicted peak is "));
}

TEST(AttentionTest, TheNamesOfSavedTensorsAreRead) {
  EXPECT_EQ(name_of(parse_saved("--saved", "weights+scores")), "scores+weights");
  EXPECT_EQ(name_of(parse_saved("--saved", "exp+weights")), "exp+weights");
  for (const char* wrong : {"scores", "weights+weights", "wieghts", "", "weights+"}) {
    EXPECT_THROW(parse_saved("--saved", wrong), Error) << wrong;
  }
}

TEST(AttentionTest, AQuadraticIsFoundThroughItsPoints) {
  const std::vector<double> s = {256, 1024, 4096, 16384};
  std::vector<double> bytes;
  for (double x : s) bytes.push_back(32 * x * x + 2560 * x + 64);
  const QuadraticFit fit = fit_quadratic(s, bytes);
  EXPECT_NEAR(fit.a, 32, 1e-6);
  EXPECT_NEAR(fit.b, 2560, 1e-3);
  EXPECT_LT(fit.largest_error, 1e-6);
  bytes[1] *= 1.5;  // no quadratic goes through these
  EXPECT_GT(fit_quadratic(s, bytes).largest_error, 0.01);
}

TEST(AttentionTest, BytesPerSquaredContextCountTheSavedTensors) {
  for (const auto& [saved, count] : {std::pair{"weights", 1}, {"scores+exp+weights", 3}}) {
    std::vector<AttentionResult> results;
    for (std::int64_t context : {64, 128, 256, 512}) {
      AttentionSpec spec = spec_of(context, 16, saved);
      spec.causal = false;
      results.push_back(measure_attention(planning(), spec));
    }
    const Table table = attention_scaling_table(results);
    ASSERT_EQ(table.rows.size(), 1u);
    // B·4 = 8 bytes per T² and tensor.
    EXPECT_NEAR(table.rows[0][8].as_double(), 8 * count, 1e-6);
    EXPECT_NEAR(table.rows[0][9].as_double(), count, 1e-6);
    // Five tensors of B·D floats, and for softmax in parts B sums.
    EXPECT_NEAR(table.rows[0][10].as_double(), 5 * 2 * 16 * 4 + (count == 3 ? 8 : 0), 1e-3);
  }
}

TEST(AttentionTest, WhatHasNoSquarePartHasNoneByRounding) {
  std::vector<AttentionResult> results;
  for (std::int64_t context : {256, 1024, 4096, 16384}) {
    AttentionSpec spec = spec_of(context, 16);
    spec.run.attention = AttentionForm::kFlash;
    results.push_back(measure_attention(planning(), spec));
    results.back().before_backward_bytes = 2561 * context + 7;  // a fit is off by rounding
  }
  const Table table = attention_scaling_table(results);
  ASSERT_EQ(table.rows.size(), 1u);
  EXPECT_EQ(table.rows[0][8], Json(0.0));
}

TEST(AttentionTest, APartThatTakesLongerThanBothIsInvalid) {
  AttentionResult r = measure_attention(planning(), spec_of(64, 8));
  r.computes = true;  // with times by hand
  r.device = "cpu";
  const auto set = [](PartTimes& part, double ms) {
    part.warmup_ms = {ms};
    part.samples_ms = {ms, ms, ms, 1.001 * ms, ms, ms, ms};
    part.busy_ms = 0.9 * ms;
  };
  set(r.forward, 10);
  set(r.backward, 20);
  set(r.whole, 30);
  const auto verdict = [&] {
    const Table table = attention_table(std::vector{r}, Json::object());
    EXPECT_EQ(table.columns.back().name, "verdict");
    return table.rows[0].back().as_string();
  };
  EXPECT_EQ(verdict(), "ok");
  set(r.whole, 15);
  EXPECT_EQ(verdict(), "invalid: part_over_whole");
}

// Planned, with times by hand: `ms` for each part.
AttentionResult timed(const AttentionSpec& spec, double ms) {
  AttentionResult r = measure_attention(planning(), spec);
  r.computes = true;
  r.device = "cpu";
  for (PartTimes* part : {&r.forward, &r.backward, &r.whole}) {
    const double time = part == &r.whole ? 2.5 * ms : ms;
    part->warmup_ms = {time};
    part->samples_ms = {time, time, time, 1.001 * time, time, time, time};
    part->busy_ms = 0.9 * time;
  }
  return r;
}

// Another form or width has another time per FLOP: that is no collapse. What is counted below the
// table are parts of its rows.
TEST(AttentionTest, FormsAndWidthsAreJudgedApartAndByTheirParts) {
  std::vector<AttentionResult> results;
  for (const auto& [context, width, ms] : {std::tuple{64, 8, 1.0}, {128, 8, 4.0}, {128, 4, 40.0}}) {
    results.push_back(timed(spec_of(context, width), ms));
  }
  Table table = attention_table(results, Json::object());
  for (const auto& row : table.rows) EXPECT_EQ(row.back().as_string(), "ok");
  EXPECT_THAT(table.notes.back(), ::testing::HasSubstr("9 of 9 measured parts"));
  results[1].forward.samples_ms.assign(7, 400.0);  // the same width, and far longer
  results[1].whole.samples_ms.assign(7, 900.0);
  table = attention_table(results, Json::object());
  EXPECT_THAT(table.rows[1].back().as_string(), ::testing::HasSubstr("collapsed_speed"));
}

TEST(AttentionTest, EagerAndCompiledAreNotOneCell) {
  std::vector<AttentionResult> results;
  for (const auto& [executor, ms] :
       {std::pair{ExecutorKind::kEager, 1.0}, {ExecutorKind::kCompiled, 0.5}}) {
    AttentionSpec spec = spec_of(64, 8);
    spec.run.executor = executor;
    results.push_back(timed(spec, ms));
  }
  const Table table = attention_table(results, Json::object());
  for (const auto& row : table.rows) EXPECT_EQ(row.back().as_string(), "ok");
}

TEST(AttentionTest, TwoContextsAreNoFit) {
  std::vector<AttentionResult> results;
  for (std::int64_t context : {64, 128}) {
    results.push_back(measure_attention(planning(), spec_of(context, 16)));
  }
  EXPECT_TRUE(attention_scaling_table(results).rows.empty());
  EXPECT_EQ(attention_table(results, Json::object()).rows.size(), 2u);
}

TEST(AttentionTest, HeadsAreAsManyAttentions) {
  for (AttentionForm form : kAll<AttentionForm>) {
    AttentionSpec one = spec_of(64, 8), many = spec_of(64, 8);
    one.run.attention = many.run.attention = form;
    one.run.shape.batch = 6;
    many.heads = 3;  // of two sequences
    const AttentionResult a = measure_attention(planning(), one);
    const AttentionResult b = measure_attention(planning(), many);
    EXPECT_EQ(a.forward.flops, b.forward.flops);
    EXPECT_EQ(a.saved_bytes, b.saved_bytes);
    EXPECT_EQ(a.before_backward_bytes, b.before_backward_bytes);
    EXPECT_EQ(a.peak_bytes, b.peak_bytes);
  }
  const Table table =
      attention_table(std::vector{measure_attention(planning(), spec_of(64, 8))}, Json::object());
  const auto heads = std::ranges::find(table.columns, "heads", &Column::name);
  ASSERT_NE(heads, table.columns.end());
  EXPECT_TRUE(heads->data_only);
}

TEST(AttentionTest, TheAccountOfACellAddsUpToWhatWasMeasured) {
  for (const std::string& name : testing::backend_names()) {
    const auto make = [&](const RunSpec&) { return testing::backend_named(name).make({}); };
    for (const std::int64_t heads : {1, 2}) {
      AttentionSpec spec = spec_of(48, 16, "scores+exp+weights");
      spec.heads = heads;
      const Table table = attention_account_table(measure_attention(make, spec), make);
      for (const char* column : {"held_bytes", "peak_bytes"}) {
        EXPECT_EQ(cell(table, "sum, predicted", column), cell(table, "measured", column));
      }
      EXPECT_EQ(cell(table, "q", "held_bytes"), Json(2 * heads * 48 * 16 * 4));
      EXPECT_EQ(cell(table, "q", "shape"), Json(heads == 1 ? "B·T·D·4" : "B·H·T·D·4"));
      EXPECT_EQ(cell(table, "q", "worked"),
                Json(heads == 1 ? "2 · 48 · 16 · 4" : "2 · 2 · 48 · 16 · 4"));
    }
  }
}

TEST(AttentionTest, ACellThatDoesNotFitIsWorkedOutToo) {
  const AttentionSpec spec = spec_of(64, 8);
  const AttentionResult fits = measure_attention(planning(), spec);
  const AttentionResult tight = measure_attention(planning(fits.peak_bytes - 1), spec);
  ASSERT_EQ(tight.status, Status::kOutOfMemory);
  const Table table = attention_account_table(tight, planning());
  EXPECT_EQ(cell(table, "sum, predicted", "peak_bytes"), Json(fits.peak_bytes));
  EXPECT_THAT(table.title, ::testing::HasSubstr("did not fit"));
}

}  // namespace
}  // namespace tracestep
