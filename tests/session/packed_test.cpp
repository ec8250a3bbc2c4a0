// Steps of packed rows: each document has the loss and the gradients that it has alone, and what
// was predicted is what is held.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <numeric>

#include "backends/cpu/cpu_device.h"
#include "backends/reference/reference_device.h"
#include "ops/functions.h"
#include "passes/autograd.h"
#include "session/devices.h"
#include "session/session.h"
#include "tokens/packed_rows.h"
#include "train/step_inputs.h"
#include "weights/model_store.h"
#include "weights/whole_tensors.h"

namespace tracestep {
namespace {

class PackedTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ops::register_all();
    register_device(
        "cpu", [](const RunSpec& run) { return make_cpu_device({.threads = run.place.threads}); });
    register_device("reference",
                    [](const RunSpec&) { return make_reference_device({.guarded = true}); });
  }
};

constexpr std::int64_t kContext = 40;
const std::vector<std::int64_t> kLengths{14, 2, 31, 9, 3, 26, 17};  // tokens of the documents

TokenSourcePtr documents(const std::vector<std::int64_t>& lengths, std::int64_t from = 0) {
  std::vector<std::int32_t> tokens;
  std::vector<std::int64_t> begins;
  std::int64_t next = from;
  for (const std::int64_t length : lengths) {
    begins.push_back(std::ssize(tokens));
    for (std::int64_t i = 0; i < length; ++i) {
      const std::int64_t id = next++ * 7 % 23;  // every fifth does not count
      tokens.push_back(static_cast<std::int32_t>(next % 5 == 0 ? untrained(id) : id));
    }
  }
  return memory_documents("documents", tokens, begins);
}

RunSpec step_of(const ModelConfig& model, const std::string& device, AttentionForm attention) {
  return {.model = model,
          .mode = Mode::kForwardBackward,
          .attention = attention,
          .packed = true,
          .seed = 3,
          .place = {.device = device, .threads = 2}};
}

using Values = std::map<std::string, std::vector<double>>;

std::vector<double> doubles_of(const HostTensor& x) {
  if (x.dtype == DType::kF64) {
    const auto span = x.as<double>();
    return {span.begin(), span.end()};
  }
  const auto span = x.as<float>();
  return {span.begin(), span.end()};
}

// The loss and the gradients of all rows of a batch, over `count` targets.
Values run(RunSpec spec, const Batch& batch, double count) {
  spec.shape = {.batch = batch.tokens.shape[0], .context = batch.tokens.shape[1]};
  const auto device = make_device(spec);
  Session session(*device, spec);
  fill_for_timing(session);
  initialize_parameters(session.store(0), spec.seed);
  Batch whole = batch;
  whole.loss_count = count;
  set_batch(session.executor(), spec, whole);
  device->allocator().reset_peak();
  session.executor().run();
  EXPECT_EQ(device->allocator().stats().peak_requested_bytes,
            session.executor().predicted_peak_bytes());
  Values out{{"loss", {session.executor().scalar("loss")}}};
  for (const std::string& name : session.store(0).names(LeafKind::kParameter)) {
    out[name] = doubles_of(session.executor().output(gradient_name(name)));
  }
  return out;
}

// The largest difference of a tensor, over its largest value.
double difference(const Values& a, const Values& b) {
  double worst = 0.0;
  for (const auto& [name, values] : a) {
    double most = 0.0, size = 1e-30;
    for (std::size_t i = 0; i < values.size(); ++i) {
      most = std::max(most, std::abs(values[i] - b.at(name)[i]));
      size = std::max(size, std::abs(values[i]));
    }
    worst = std::max(worst, most / size);
  }
  return worst;
}

// All documents in packed rows, beside the sum of what each gives in a row of its own length.
void expect_each_alone(const RunSpec& spec, double tolerance) {
  const PackedRows packed(documents(kLengths), kContext);
  std::vector<std::int64_t> rows(static_cast<std::size_t>(packed.rows()));
  std::iota(rows.begin(), rows.end(), 0);
  const Batch batch = packed.batch(rows);
  ASSERT_GT(packed.rows(), 1);
  const auto count = static_cast<double>(batch.counted);
  const Values together = run(spec, batch, count);
  Values alone;
  std::int64_t from = 0;
  for (const std::int64_t length : kLengths) {
    const PackedRows one(documents({length}, from), length - 1);
    from += length;
    for (const auto& [name, values] : run(spec, one.batch(std::vector<std::int64_t>{0}), count)) {
      alone[name].resize(values.size());
      for (std::size_t i = 0; i < values.size(); ++i) alone[name][i] += values[i];
    }
  }
  EXPECT_LE(difference(alone, together), tolerance) << name_of(spec.attention);
}

ModelConfig rotated() {
  return {.vocab = 23, .d_model = 24, .d_ff = 36, .layers = 2, .heads = 6, .kv_heads = 2};
}
// Learned positions, half of a head rotated, or a window in every second layer.
ModelConfig learned() {
  ModelConfig out = rotated();
  out.positions = Positions::kLearned;
  out.max_positions = kContext;
  return out;
}
ModelConfig windowed() {
  ModelConfig out = rotated();
  out.window = 7;
  out.window_layers = "wf";
  out.score_cap = 3.0;
  return out;
}

TEST_F(PackedTest, EachDocumentHasWhatItHasAloneInFloat64) {
  for (const ModelConfig& model : {rotated(), learned(), windowed()}) {
    for (const AttentionForm form : {AttentionForm::kNaive, AttentionForm::kFlash}) {
      expect_each_alone(step_of(model, "reference", form), 1e-12);
    }
  }
}

TEST_F(PackedTest, EachDocumentHasWhatItHasAloneOnACpu) {
  for (const ModelConfig& model : {rotated(), windowed()}) {
    for (const AttentionForm form : {AttentionForm::kNaive, AttentionForm::kFlash}) {
      expect_each_alone(step_of(model, "cpu", form), 2e-6);
    }
  }
}

// A row that is one document is the row of a text, bit for bit: tiles begin where they do there.
TEST_F(PackedTest, ARowOfOneDocumentIsARowOfText) {
  const std::vector<std::int64_t> zero{0};
  const PackedRows one(documents({kContext + 1}), kContext);
  const Batch batch = one.batch(zero);
  for (const AttentionForm form : {AttentionForm::kNaive, AttentionForm::kFlash}) {
    RunSpec spec = step_of(rotated(), "cpu", form);
    const auto count = static_cast<double>(batch.counted);
    const Values packed = run(spec, batch, count);
    spec.packed = false;
    spec.masks_targets = true;
    Batch text = batch;
    text.starts = text.ends = {};
    EXPECT_EQ(packed, run(spec, text, count)) << name_of(form);
  }
}

TEST_F(PackedTest, MeasuredStepsHoldWhatWasPredicted) {
  for (const char* precision : {"fp32", "bf16"}) {
    for (const ExecutorKind executor : {ExecutorKind::kEager, ExecutorKind::kCompiled}) {
      RunSpec spec = step_of(rotated(), "cpu", AttentionForm::kFlash);
      spec.mode = Mode::kStep;
      spec.shape = {.batch = 2, .context = 96};
      spec.executor = executor;
      spec.precision = parse_precision("precision", precision);
      const auto device = make_device(spec);
      Session session(*device, spec);
      fill_for_timing(session);
      initialize_parameters(session.store(0), spec.seed);
      device->allocator().reset_peak();
      session.executor().run();
      EXPECT_EQ(device->allocator().stats().peak_requested_bytes,
                session.executor().predicted_peak_bytes());
      EXPECT_NEAR(session.executor().scalar("loss"), std::log(23.0), 0.5);
    }
  }
}

}  // namespace
}  // namespace tracestep
