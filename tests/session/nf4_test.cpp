// Steps over weights of 4 bits: they compute what widened weights compute, hold what was predicted,
// and one matrix at a time is wide.
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "backends/cpu/cpu_device.h"
#include "backends/reference/reference_device.h"
#include "ops/functions.h"
#include "ops/nf4_codes.h"
#include "passes/autograd.h"
#include "passes/form_passes.h"
#include "session/devices.h"
#include "session/session.h"
#include "spec/parse_words.h"
#include "train/step_inputs.h"
#include "weights/model_store.h"
#include "weights/nf4_weights.h"
#include "weights/peft_files.h"
#include "weights/whole_tensors.h"

namespace tracestep {
namespace {

class Nf4Test : public ::testing::Test {
 protected:
  void SetUp() override {
    ops::register_all();
    register_device(
        "cpu", [](const RunSpec& run) { return make_cpu_device({.threads = run.place.threads}); });
    register_device("reference",
                    [](const RunSpec&) { return make_reference_device({.guarded = true}); });
  }
};

RunSpec step_of(const std::string& base, const std::string& device, Mode mode) {
  return {.model = {.vocab = 42, .d_model = 64, .d_ff = 128, .layers = 3, .heads = 4},
          .shape = {.batch = 2, .context = 9},
          .mode = mode,
          .lora = parse_adapters("lora", "r=3,targets=all,whole=lm_head" + base),
          .seed = 7,
          .place = {.device = device, .threads = 1}};
}

// Returns the values that the codes of a weight stand for.
HostTensor from_codes_of(const TensorView& weight) {
  const Nf4Weights codes = to_nf4(weight);
  constexpr DynamicValues values;
  HostTensor out = HostTensor::zeros(DType::kF64, weight.shape);
  for (std::size_t i = 0; i < out.as<double>().size(); ++i) {
    const std::size_t block = i / kNf4Block;
    const double m = static_cast<double>(values.at[codes.magnitudes.as<std::uint8_t>()[block]]) *
                         static_cast<double>(codes.scales.as<float>()[block / kNf4Group]) +
                     static_cast<double>(codes.offset.as<float>()[0]);
    const int pair = codes.codes.as<std::uint8_t>()[i / 2];
    out.as<double>()[i] = static_cast<double>(kNf4Values[i % 2 == 0 ? pair / 16 : pair % 16]) * m;
  }
  return out;
}

using Values = std::map<std::string, std::vector<double>>;

// The loss and all gradients (the table of magnitudes is float32, and the oracle rounds nothing);
// `rounds`: weights that would be kept in codes are those that their
// codes stand for.
Values run(const RunSpec& spec, bool rounds) {
  const auto device = make_device(spec);
  Session session(*device, spec);
  fill_for_timing(session);
  const WholeTensors tensors(session.store(0));
  initialize_parameters(tensors, spec.seed);
  int rounded = 0;
  for (const std::string& name : tensors.names(LeafKind::kConstant)) {
    const bool is_matrix = name.starts_with("layers.") && tensors.type(name).shape.rank() == 2;
    if (!rounds || !is_matrix) continue;
    tensors.set(name, from_codes_of(as_dtype(tensors.get(name), DType::kF32)));
    ++rounded;
  }
  EXPECT_EQ(rounded, rounds ? 21 : 0);
  for (const std::string& name : tensors.names(LeafKind::kParameter)) {
    if (!name.ends_with(kAdapterB)) continue;
    HostTensor b = tensors.get(name);
    double next = 0.3;
    for (double& x : b.as<double>()) x = next = std::fmod(next * 3.7 + 0.11, 1.0) - 0.5;
    tensors.set(name, b);
  }
  session.executor().run();
  Values out{{"loss", {session.executor().scalar("loss")}}};
  for (const std::string& name : tensors.names(LeafKind::kParameter)) {
    const HostTensor gradient = session.executor().output(gradient_name(name));
    const auto values = gradient.as<double>();
    out[name] = {values.begin(), values.end()};
  }
  return out;
}

TEST_F(Nf4Test, LossAndGradientsAreThoseOfTheWidenedWeights) {
  const Values coded = run(step_of(",base=nf4", "reference", Mode::kForwardBackward), false);
  const Values wide = run(step_of("", "reference", Mode::kForwardBackward), true);
  ASSERT_EQ(coded.size(), wide.size());
  EXPECT_TRUE(coded.contains("lm_head.weight"));
  for (const auto& [name, values] : wide) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      EXPECT_NEAR(coded.at(name)[i], values[i], 1e-5 * std::max(1.0, std::abs(values[i]))) << name;
    }
  }
}

TEST_F(Nf4Test, WhatIsHeldIsWhatWasPredicted) {
  std::int64_t least = 0;
  for (const char* precision : {"fp32", "bf16"}) {
    for (const ExecutorKind executor : {ExecutorKind::kEager, ExecutorKind::kCompiled}) {
      for (const Recomputation::Kind kind :
           {Recomputation::Kind::kNone, Recomputation::Kind::kParts}) {
        RunSpec spec = step_of(",base=nf4", "cpu", Mode::kStep);
        spec.executor = executor;
        spec.recompute.kind = kind;
        spec.precision = parse_precision("precision", precision);
        const auto device = make_device(spec);
        Session session(*device, spec);
        fill_for_timing(session);
        initialize_parameters(session.store(0), spec.seed);
        device->allocator().reset_peak();
        session.executor().run();
        const std::int64_t peak = session.executor().predicted_peak_bytes();
        EXPECT_EQ(device->allocator().stats().peak_requested_bytes, peak) << precision;
        spec.lora.base = BaseWeights::kStored;
        Session stored(*device, spec);
        EXPECT_LT(peak, stored.executor().predicted_peak_bytes()) << precision;
        least = std::max(least, peak);
      }
    }
  }
  EXPECT_GT(least, 0);
}

// Each weight is widened in front of its product, and again for backward.
TEST_F(Nf4Test, OneMatrixAtATimeIsWide) {
  const RunSpec spec = step_of(",base=nf4", "cpu", Mode::kStep);
  const Program program = step_program(spec);
  std::map<ValueId, int> widened;
  int forward = 0, again = 0;
  for (const Node& node : program.nodes) {
    if (node.op->name != "widen_nf4") continue;
    (node.epoch == 0 ? forward : again) += 1;
    int readers = 0;
    for (const Node& reader : program.nodes) {
      for (const ValueId id : reader.inputs) readers += id == node.outputs[0] ? 1 : 0;
    }
    EXPECT_EQ(readers, 1);
  }
  EXPECT_EQ(forward, 21);
  // The first layer's inputs need no gradient but where adapters lie below.
  EXPECT_GE(again, 18);
  EXPECT_LT(again, 21);
}

}  // namespace
}  // namespace tracestep
