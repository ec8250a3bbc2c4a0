// Recomputation and updates inside backward, on devices that compute: the same bits, and the peak
// that was predicted.
#include <gtest/gtest.h>

#include "exec/executor.h"
#include "ir/op_def.h"
#include "ops/functions.h"
#include "spec/fields.h"
#include "spec/parse_words.h"
#include "spec/step_program.h"
#include "support/backends.h"
#include "support/host_values.h"
#include "weights/model_store.h"

namespace tracestep {
namespace {

struct Form {
  Mode mode;
  Granularity ops;
  AttentionForm attention;
  const char* precision;
};

constexpr Form kForms[] = {
    {Mode::kStep, Granularity::kFused, AttentionForm::kNaive, "fp32"},
    {Mode::kStep, Granularity::kFused, AttentionForm::kFlash, "bf16"},
    {Mode::kStep, Granularity::kPrimitive, AttentionForm::kNaive, "bf16"},
    {Mode::kForwardBackward, Granularity::kPrimitive, AttentionForm::kFlash, "fp32"},
    {Mode::kForwardBackward, Granularity::kFused, AttentionForm::kNaive, "bf16"},
    {Mode::kStep, Granularity::kFused, AttentionForm::kFlash, "fp16"}};

RunSpec step_of(const Form& form) {
  RunSpec spec;
  spec.model = {.vocab = 31, .d_model = 16, .d_ff = 24, .layers = 4, .heads = 2};
  spec.shape = {.batch = 2, .context = 7};
  spec.mode = form.mode;
  spec.ops = form.ops;
  spec.attention = form.attention;
  spec.precision = parse_precision("test", form.precision);
  return spec;
}

void set_inputs(Executor& executor, int round) {
  for (ValueId id : executor.program().leaves) {
    const Value& leaf = executor.program().value(id);
    if (leaf.leaf != LeafKind::kInput) continue;
    const std::string seed = fmt::format("{} {}", leaf.name, round);
    executor.set_input(leaf.name,
                       leaf.type.shape.empty()
                           ? testing::from_doubles(leaf.type.dtype, {}, std::vector{0.01})
                           : testing::random_tensor(leaf.type, seed, 0.0, 30.0));
  }
}

struct Outcome {
  std::map<std::string, std::vector<std::byte>> bytes;  // of outputs, parameters and states
  std::int64_t predicted_peak = 0, measured_peak = 0;
};

// Two steps: loss and gradients of both, and the weights after them.
Outcome two_steps(const RunSpec& spec, Device& device) {
  Outcome out;
  Store store(device);
  const auto executor = make_executor(spec.executor, store, step_program(spec, device));
  initialize_parameters(store, 1);
  initialize_states(store);
  out.predicted_peak = executor->predicted_peak_bytes();
  for (int round = 0; round < 2; ++round) {
    set_inputs(*executor, round);
    device.allocator().reset_peak();
    executor->run();
    device.synchronize();
    out.measured_peak =
        std::max(out.measured_peak, device.allocator().stats().peak_requested_bytes);
    for (const Output& o : executor->program().outputs) {
      out.bytes[fmt::format("{} {}", o.name, round)] = executor->output(o.name).bytes;
    }
    executor->release_outputs();
  }
  for (LeafKind kind : {LeafKind::kParameter, LeafKind::kState}) {
    for (const std::string& name : store.names(kind)) {
      const bool is_copy = name.starts_with("shadow.");  // of a weight; not every form keeps them
      if (!is_copy) out.bytes[name] = store.get(name).bytes;
    }
  }
  return out;
}

class RecomputeBitsTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { ops::register_all(); }
};

TEST_P(RecomputeBitsTest, LossesGradientsAndWeightsAreTheSameBits) {
  const testing::Backend& backend = testing::backend_named(GetParam());
  for (const Form& form : kForms) {
    for (ExecutorKind executor : kAll<ExecutorKind>) {
      RunSpec spec = step_of(form);
      spec.executor = executor;
      const auto device = backend.make({});
      // A row that is computed again may be fused with other ops than in forward there, and be
      // added up in another order.
      if (has_arena(executor) && device->has_kernel(find_op("fused"))) continue;
      const Outcome plain = two_steps(spec, *device);
      for (const char* choice : {"blocks", "every=2", "nested", "layers.*.ffn"}) {
        spec.recompute = parse_recomputation("test", choice);
        const Outcome again = two_steps(spec, *backend.make({}));
        const std::string which = label_of(spec) + " " + std::string(name_of(executor));
        EXPECT_EQ(again.bytes, plain.bytes) << which;
        EXPECT_EQ(again.measured_peak, again.predicted_peak) << which;
      }
    }
  }
}

TEST_P(RecomputeBitsTest, AStepHoldsNoMoreThanItsBudget) {
  const testing::Backend& backend = testing::backend_named(GetParam());
  for (ExecutorKind executor : kAll<ExecutorKind>) {
    RunSpec spec = step_of(kForms[0]);
    spec.shape.context = 48;
    spec.executor = executor;
    const Outcome plain = two_steps(spec, *backend.make({}));
    spec.recompute = parse_recomputation("test", "blocks");
    const std::int64_t least = two_steps(spec, *backend.make({})).predicted_peak;
    ASSERT_LT(least, plain.predicted_peak);
    const std::int64_t budget = (least + plain.predicted_peak) / 2;
    spec.recompute = parse_recomputation("test", fmt::format("budget={}B", budget));
    const Outcome again = two_steps(spec, *backend.make({}));
    EXPECT_LE(again.measured_peak, budget);
    EXPECT_EQ(again.measured_peak, again.predicted_peak);
    const auto device = backend.make({});
    const bool fuses = device->has_kernel(find_op("fused"));
    if (executor == ExecutorKind::kEager || !fuses) {
      EXPECT_EQ(again.bytes, plain.bytes);
    }
  }
}

// Their gradients are states that every micro-batch adds to, and a step of the optimizer alone
// reads.
TEST_P(RecomputeBitsTest, AccumulatedGradientsAreTheSameBits) {
  const testing::Backend& backend = testing::backend_named(GetParam());
  for (const char* precision : {"fp32", "fp16"}) {
    RunSpec spec = step_of(kForms[4]);
    spec.precision = parse_precision("test", precision);
    spec.gradients = GradientKind::kAccumulate;
    const Outcome plain = two_steps(spec, *backend.make({}));
    for (const char* choice : {"blocks", "nested"}) {
      spec.recompute = parse_recomputation("test", choice);
      const Outcome again = two_steps(spec, *backend.make({}));
      EXPECT_EQ(again.bytes, plain.bytes) << precision << " " << choice;
      EXPECT_EQ(again.measured_peak, again.predicted_peak) << precision << " " << choice;
    }
  }
}

TEST_P(RecomputeBitsTest, EarlyUpdatesAreTheSameBitsAndHoldLess) {
  const testing::Backend& backend = testing::backend_named(GetParam());
  for (const Form& form : kForms) {
    if (form.mode != Mode::kStep) continue;
    for (ExecutorKind executor : kAll<ExecutorKind>) {
      RunSpec spec = step_of(form);
      spec.executor = executor;
      spec.shape = {.batch = 1, .context = 2};  // few activations, so that gradients are the most
      // Without shadows `merge` has other products to add up.
      if (has_arena(executor)) spec.compile_passes = {{"merge", "join"}};
      const auto device = backend.make({});
      if (has_arena(executor) && device->has_kernel(find_op("fused"))) continue;
      const Outcome plain = two_steps(spec, *device);
      spec.updates = UpdateTime::kEarly;
      for (const char* choice : {"none", "nested"}) {
        spec.recompute = parse_recomputation("test", choice);
        const Outcome early = two_steps(spec, *backend.make({}));
        const std::string which = label_of(spec);
        EXPECT_EQ(early.bytes, plain.bytes) << which;
        EXPECT_EQ(early.measured_peak, early.predicted_peak) << which;
        EXPECT_LE(early.predicted_peak, plain.predicted_peak) << which;
        // With autocast the peak may be in forward, and with loss scaling updates wait.
        if (!spec.precision.autocast) {
          EXPECT_LT(early.predicted_peak, plain.predicted_peak) << which;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, RecomputeBitsTest,
                         ::testing::ValuesIn(testing::backend_names()));

}  // namespace
}  // namespace tracestep
