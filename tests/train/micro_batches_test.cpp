// The programs of a step in micro-batches, beside what a training of them holds.
#include "spec/micro_batches.h"

#include <gtest/gtest.h>

#include "analysis/plan.h"
#include "backends/comm/local/local_group.h"
#include "backends/cpu/cpu_device.h"
#include "backends/reference/reference_device.h"
#include "base/random.h"
#include "ops/functions.h"
#include "passes/autograd.h"
#include "passes/form_passes.h"
#include "passes/recompute_budget.h"
#include "session/session.h"
#include "spec/parse_words.h"
#include "support/host_values.h"
#include "support/run_program.h"
#include "support/tiny_training.h"
#include "train/step_inputs.h"
#include "weights/model_store.h"
#include "weights/whole_tensors.h"

namespace tracestep {
namespace {

using testing::Tensors;

RankDevices ranks_of(Device& first, int ranks) {
  if (ranks == 1) return RankDevices(first);
  std::vector<std::unique_ptr<Device>> others;
  for (int rank = 1; rank < ranks; ++rank) others.push_back(make_cpu_device({.threads = 1}));
  return {first, std::move(others), make_local_group(ranks)};
}

std::int64_t peak_of_training(const TrainOptions& options) {
  const auto first = make_cpu_device({.threads = 1});
  const RankDevices devices = ranks_of(*first, options.run.parallel.ranks);
  Trainer trainer(devices, options, testing::some_tokens(), nullptr);
  trainer.step(0);
  first->allocator().reset_peak();
  trainer.step(1);
  return first->allocator().stats().peak_requested_bytes;
}

TEST(MicroBatchesTest, TheirPeakIsThatOfATrainingThatAddsThemUp) {
  ops::register_all();
  for (const char* parallel :
       {"none", "dp=2", "dp=2,shard=1", "dp=2,shard=2", "dp=2,shard=3", "dp=2,tp=2"}) {
    for (const ExecutorKind executor : {ExecutorKind::kEager, ExecutorKind::kCompiled}) {
      for (const char* precision : {"fp32", "bf16", "fp8"}) {
        TrainOptions options = testing::tiny_training();
        options.run.parallel = parse_parallel("test", parallel);
        options.run.executor = executor;
        options.run.precision = parse_precision("test", precision);
        options.run.fp8_products = Float8Products::kAll;
        options.run.shape.batch = 4;
        options.run.model.vocab = 24;  // which two ranks can divide
        options.run.model.vocab = 24;
        options.run.accumulate = 3;
        RunSpec whole = options.run;
        whole.shape.batch *= options.run.accumulate;
        const DeviceTraits traits{.threads = 1};
        EXPECT_EQ(predicted_peak_bytes(executor, parts_of_step(whole, 3, traits), traits),
                  peak_of_training(options))
            << parallel << " " << name_of(executor) << " " << precision;
      }
    }
  }
}

// The least budget that is named is what a training with it holds at most.
TEST(MicroBatchesTest, ATrainingHoldsNoMoreThanItsBudget) {
  ops::register_all();
  for (const std::int64_t shards : {0, 4}) {
    for (const ExecutorKind executor : {ExecutorKind::kEager, ExecutorKind::kCompiled}) {
      for (const char* precision : {"fp32", "bf16", "fp8"}) {
        SCOPED_TRACE(fmt::format("{} {} {}", shards, name_of(executor), precision));
        TrainOptions options = testing::tiny_training();
        options.run.executor = executor;
        options.run.precision = parse_precision("test", precision);
        options.run.fp8_products = Float8Products::kAll;
        options.run.shape = {.batch = 4, .context = 16};
        options.run.accumulate = shards == 0 ? 3 : 1;
        options.shards = shards;
        options.run.recompute = {.kind = Recomputation::Kind::kBudget, .budget_bytes = 1};
        try {
          peak_of_training(options);
          ADD_FAILURE() << "a budget of one byte";
        } catch (const BudgetNotMet& error) {
          options.run.recompute.budget_bytes = error.least_peak_bytes();
          EXPECT_LE(peak_of_training(options), error.least_peak_bytes());
        }
      }
    }
  }
}

// The reference device holds every number in 64 bits.
TEST(MicroBatchesTest, ABudgetIsOfTheDevicesOwnNumbers) {
  ops::register_all();
  TrainOptions options = testing::tiny_training();
  options.run.recompute = {.kind = Recomputation::Kind::kBudget, .budget_bytes = 1};
  for (const std::int64_t accumulate : {1, 3}) {
    options.run.accumulate = accumulate;
    const auto peak_with = [&](std::int64_t budget_bytes) {
      options.run.recompute.budget_bytes = budget_bytes;
      const auto device = make_reference_device({});
      Trainer trainer(*device, options, testing::some_tokens(), nullptr);
      trainer.step(0);
      return device->allocator().stats().peak_requested_bytes;
    };
    try {
      peak_with(1);
      ADD_FAILURE() << "a budget of one byte";
    } catch (const BudgetNotMet& error) {
      EXPECT_LE(peak_with(error.least_peak_bytes()), error.least_peak_bytes());
    }
  }
}

std::vector<double> losses_of_training(const TrainOptions& options) {
  const auto first = make_cpu_device({.threads = 1});
  const RankDevices devices = ranks_of(*first, options.run.parallel.ranks);
  Trainer trainer(devices, options, testing::some_tokens(), nullptr);
  initialize_parameters(trainer.tensors(), 3);
  std::vector<double> out;
  for (int i = 0; i < 4; ++i) out.push_back(trainer.step(i).loss);
  return out;
}

// Its gradient has two terms, of which each rank has a part: what is there already is added once.
TEST(MicroBatchesTest, ATiedHeadIsAddedUpOverRanks) {
  ops::register_all();
  for (const std::int64_t shards : {0, 6}) {
    TrainOptions options = testing::tiny_training();
    options.run.model.is_tied = true;
    options.run.model.vocab = 24;
    options.run.accumulate = 3;
    options.run.shape.batch = 6;
    options.shards = shards;
    const std::vector<double> alone = losses_of_training(options);
    for (const char* parallel : {"dp=2", "tp=2"}) {
      options.run.parallel = parse_parallel("test", parallel);
      const std::vector<double> both = losses_of_training(options);
      for (std::size_t i = 0; i < alone.size(); ++i)
        EXPECT_NEAR(alone[i], both[i], 1e-5) << i << parallel << shards;
    }
    EXPECT_GT(std::abs(alone.front() - alone.back()), 1e-3);
  }
}

// --- one program --------------------------------------------------------------------------------
RunSpec step_of(std::int64_t batch, std::int64_t accumulate, const char* precision = "fp32",
                ExecutorKind executor = ExecutorKind::kCompiled) {
  RunSpec out = testing::tiny_training().run;
  out.model.vocab = 24;
  out.shape.batch = batch;
  out.accumulate = accumulate;
  out.precision = parse_precision("test", precision);
  out.fp8_products = Float8Products::kAll;
  out.executor = executor;
  out.optimizer.report_norm = out.optimizer.guard_finite = true;
  return out;
}

std::int64_t tiny_context() {
  return testing::tiny_training().run.shape.context;
}

HostTensor ids(const RunSpec& spec, std::int64_t rows, std::string_view stream) {
  HostTensor out = HostTensor::zeros(DType::kI64, {rows, spec.shape.context});
  const CounterRng rng(3, stream);
  std::uint64_t index = 0;
  for (std::int64_t& id : out.as<std::int64_t>())
    id = static_cast<std::int64_t>(rng.below(index++, 24));
  return out;
}

void set_rates(Executor& executor, int step) {
  executor.set_scalar("lr", 0.01 / step);
  executor.set_scalar("step_size", 0.02 / step);
}

Tensors weights_of(const Store& store) {
  Tensors out;
  for (const std::string& name : store.names(LeafKind::kParameter)) out[name] = store.get(name);
  return out;
}

constexpr int kSteps = 3;

// The weights after steps of one program, of which each has `rows` rows of the same tokens.
Tensors stepped(Device& device, const RunSpec& spec, std::vector<double>* losses = nullptr) {
  Session session(device, spec);
  initialize_for_timing(session.store(), 5);
  const std::int64_t rows = spec.shape.batch * spec.accumulate;
  for (int step = 1; step <= kSteps; ++step) {
    session.executor().set_input("tokens", ids(spec, rows, fmt::format("tokens {}", step)));
    session.executor().set_input("targets", ids(spec, rows, fmt::format("targets {}", step)));
    set_rates(session.executor(), step);
    session.executor().run();
    if (losses != nullptr) losses->push_back(session.executor().scalar("loss"));
  }
  return weights_of(session.store());
}

// Those after runs of a program for each micro-batch, and one for the update.
Tensors looped(Device& device, const RunSpec& spec, std::vector<double>& losses) {
  const RankStores stores(device);
  std::vector<std::unique_ptr<Executor>> executors;
  std::vector<Value> leaves;
  for (const GradientKind kind : {GradientKind::kPersistent, GradientKind::kAccumulate}) {
    const RunSpec part = micro_batch_of(spec, kind);
    const Program program = program_for(micro_batch_loss(part, spec.accumulate), part, device);
    std::ranges::copy(leaves_of(program), std::back_inserter(leaves));
    executors.push_back(stores.executor(part, program));
  }
  const auto update = stores.executor(spec, update_of_micro_batches(spec, leaves, device.traits()));
  initialize_for_timing(stores.first(), 5);
  for (int step = 1; step <= kSteps; ++step) {
    losses.push_back(0);
    const std::int64_t batch = spec.shape.batch, rows = batch * spec.accumulate;
    for (std::int64_t i = 0; i < spec.accumulate; ++i) {
      Executor& executor = *executors[i == 0 ? 0 : 1];
      for (const char* name : {"tokens", "targets"}) {
        const HostTensor all = ids(spec, rows, fmt::format("{} {}", name, step));
        const std::size_t bytes = all.bytes.size() / static_cast<std::size_t>(spec.accumulate);
        executor.set_input(
            name, {DType::kI64,
                   {batch, spec.shape.context},
                   std::span(all.bytes).subspan(static_cast<std::size_t>(i) * bytes, bytes)});
      }
      executor.run();
      losses.back() += executor.scalar("loss");
    }
    set_rates(*update, step);
    update->run();
  }
  return weights_of(stores.first());
}

TEST(JoinedMicroBatchesTest, HaveTheBitsOfALoop) {
  ops::register_all();
  for (const ExecutorKind executor : {ExecutorKind::kEager, ExecutorKind::kCompiled}) {
    for (const char* precision : {"fp32", "bf16", "bf16 low", "fp8", "fp8 low", "bf16-pure"}) {
      SCOPED_TRACE(fmt::format("{} {}", name_of(executor), precision));
      const std::string_view words = precision;
      RunSpec spec = step_of(2, 4, std::string(words.substr(0, words.find(' '))).c_str(), executor);
      if (words.ends_with("low")) spec.grad_accum_dtype = GradientSums::kLow;
      const auto device = make_cpu_device({.threads = 1});
      std::vector<double> losses, losses_of_loop;
      const Tensors one = stepped(*device, spec, &losses),
                    loop = looped(*device, spec, losses_of_loop);
      ASSERT_EQ(one.size(), loop.size());
      for (const auto& [name, value] : one) EXPECT_EQ(value.bytes, loop.at(name).bytes) << name;
      for (int i = 0; i < kSteps; ++i) EXPECT_NEAR(losses[i], losses_of_loop[i], 1e-6);
    }
  }
}

std::int64_t gradient_bytes(const Program& program, DType dtype) {
  std::int64_t out = 0;
  for (const ValueId id : program.leaves) {
    const Value& leaf = program.value(id);
    if (leaf.name.starts_with(kGradientPrefix) && leaf.type.dtype == dtype)
      out += leaf.type.bytes();
  }
  return out;
}

// Gradients that are made in float32, of norms and of the embedding, stay in it.
TEST(JoinedMicroBatchesTest, AddUpGradientsOfProductsInTheirDtype) {
  ops::register_all();
  for (const ExecutorKind executor : {ExecutorKind::kEager, ExecutorKind::kCompiled}) {
    RunSpec spec = step_of(2, 3, "bf16", executor);
    const Program wide = step_program(spec);
    spec.grad_accum_dtype = GradientSums::kLow;
    const Program narrow = step_program(spec);
    const std::int64_t others = gradient_bytes(narrow, DType::kF32);
    EXPECT_GT(others, 0);
    EXPECT_GT(gradient_bytes(narrow, DType::kBF16), others);
    EXPECT_EQ(gradient_bytes(wide, DType::kF32), 2 * gradient_bytes(narrow, DType::kBF16) + others);
    // In a compiled step the product itself adds.
    const auto adding = std::ranges::count_if(
        narrow.nodes, [](const Node& node) { return node.op->name == "matmul_add"; });
    EXPECT_EQ(adding > 0, executor == ExecutorKind::kCompiled);
  }
}

TEST(JoinedMicroBatchesTest, SumsInSixteenBitsAreCloseToThoseInFloat32) {
  ops::register_all();
  const auto device = make_cpu_device({.threads = 1});
  RunSpec spec = step_of(2, 16, "bf16");
  std::vector<double> wide, narrow;
  stepped(*device, spec, &wide);
  spec.grad_accum_dtype = GradientSums::kLow;
  stepped(*device, spec, &narrow);
  EXPECT_EQ(narrow[0], wide[0]);
  for (int i = 1; i < kSteps; ++i) EXPECT_NEAR(narrow[i], wide[i], 2e-3 * wide[i]) << i;
}

// A gradient goes into its state behind the product that makes it, which then needs to wait for
// nothing: the arena is that of a step without gradients.
TEST(JoinedMicroBatchesTest, GradientsOfLayersAreNotAliveTogether) {
  ops::register_all();
  for (const char* precision : {"fp32", "bf16"}) {
    for (const ExecutorKind executor : {ExecutorKind::kArena, ExecutorKind::kCompiled}) {
      const auto arena = [&](std::int64_t layers) {
        RunSpec spec = step_of(2, 3, precision, executor);
        spec.model = {.vocab = 24, .d_model = 64, .d_ff = 256, .layers = layers, .heads = 2};
        spec.recompute = Recomputation::blocks();
        return plan_step(step_program(spec), {}).arena_bytes;
      };
      const std::int64_t input = 2 * 4 * tiny_context() * 64;
      EXPECT_LE(arena(12) - arena(4), 8 * input) << precision << " " << name_of(executor);
    }
  }
}

TEST(JoinedMicroBatchesTest, AreOneLargeBatch) {
  ops::register_all();
  const auto device = make_reference_device({});
  std::vector<double> losses, losses_at_once;
  const Tensors parts = stepped(*device, step_of(2, 3), &losses),
                whole = stepped(*device, step_of(6, 1), &losses_at_once);
  for (const auto& [name, value] : parts) {
    const std::vector<double> a = testing::to_doubles(value),
                              b = testing::to_doubles(whole.at(name));
    for (std::size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], 1e-12) << name << " " << i;
  }
  for (int i = 0; i < kSteps; ++i) EXPECT_NEAR(losses[i], losses_at_once[i], 1e-12);
}

TEST(JoinedMicroBatchesTest, TakeWhatWasPredicted) {
  ops::register_all();
  for (const ExecutorKind executor : {ExecutorKind::kEager, ExecutorKind::kCompiled}) {
    for (const char* precision : {"fp32", "bf16", "fp8"}) {
      for (const std::int64_t accumulate : {2, 5}) {
        const RunSpec spec = step_of(2, accumulate, precision, executor);
        const auto device = make_cpu_device({.threads = 1});
        const std::int64_t predicted = predicted_peak_bytes(
            executor, step_program(spec, DeviceTraits{.threads = 1}), DeviceTraits{.threads = 1});
        stepped(*device, spec);
        EXPECT_EQ(device->allocator().stats().peak_requested_bytes, predicted)
            << name_of(executor) << " " << precision << " " << accumulate;
      }
    }
  }
}

std::ptrdiff_t copies_of_weights(const Program& program) {
  return std::ranges::count_if(program.nodes, [&](const Node& node) {
    return std::ranges::any_of(
               node.outputs,
               [&](ValueId id) { return program.value(id).role == Role::kWeightCast; }) &&
           node.origin().phase != Phase::kOptimizer && !node.op->is_view();
  });
}

TEST(JoinedMicroBatchesTest, MakeNarrowCopiesAndCodesOnce) {
  ops::register_all();
  const DeviceTraits gpu{.kind = DeviceKind::kCuda};
  for (const char* precision : {"bf16", "fp8"}) {
    for (const ExecutorKind executor : {ExecutorKind::kEager, ExecutorKind::kCompiled}) {
      const auto of = [&](std::int64_t accumulate) {
        return copies_of_weights(step_program(step_of(16, accumulate, precision, executor), gpu));
      };
      SCOPED_TRACE(fmt::format("{} {}", precision, name_of(executor)));
      EXPECT_EQ(of(2), of(7));
      const bool are_states =
          executor == ExecutorKind::kCompiled && precision == std::string("bf16");
      EXPECT_EQ(of(2) == 0, are_states);
    }
  }
}

// The arena is that of one micro-batch: gradients and inputs are all that is there besides.
TEST(JoinedMicroBatchesTest, HoldTheActivationsOfOne) {
  ops::register_all();
  const auto arena = [](std::int64_t accumulate) {
    return plan_step(step_program(step_of(8, accumulate)), {}).arena_bytes;
  };
  EXPECT_EQ(arena(3), arena(2));
  EXPECT_EQ(arena(9), arena(2));
  EXPECT_LT(static_cast<double>(arena(9)), 1.05 * static_cast<double>(arena(1)));
}

TEST(JoinedMicroBatchesTest, AreNotAnyNumber) {
  ops::register_all();
  try {
    step_program(step_of(2, kMostInOneProgram + 1));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUsage);
    EXPECT_STREQ(
        error.what(),
        "[accumulate] 257 micro-batches; one program is made of at most 256; give fewer and "
        "larger ones");
  }
}

// Nothing waits for a norm, so a training holds what a step with early updates does.
TEST(EarlyUpdatesTest, ATrainingHoldsNoMoreThanItsStep) {
  ops::register_all();
  TrainOptions options = testing::tiny_training();
  options.run.model = {.vocab = 23, .d_model = 64, .d_ff = 128, .layers = 4, .heads = 2};
  const auto peak_and_loss = [&](UpdateTime when) {
    options.run.updates = when;
    const auto device = make_cpu_device({.threads = 1});
    Trainer trainer(RankDevices(*device), options, testing::some_tokens(), nullptr);
    trainer.step(0);
    device->allocator().reset_peak();
    const double loss = trainer.step(1).loss;
    return std::pair(device->allocator().stats().peak_requested_bytes, loss);
  };
  const auto [late_peak, late_loss] = peak_and_loss(UpdateTime::kEnd);
  const auto [early_peak, early_loss] = peak_and_loss(UpdateTime::kEarly);
  EXPECT_EQ(early_loss, late_loss);
  const DeviceTraits traits{.threads = 1};
  EXPECT_EQ(early_peak, predicted_peak_bytes(options.run.executor,
                                             parts_of_step(options.run, 1, traits), traits));
  EXPECT_LT(early_peak, late_peak - 100'000);
}

}  // namespace
}  // namespace tracestep
