// Steps whose optimizer's states, or what blocks keep for backward, lie in the host's memory: the
// same bits, and the bytes of both memories as predicted.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "analysis/cost.h"
#include "analysis/memory_map.h"
#include "backends/null/null_device.h"
#include "base/random.h"
#include "exec/small_steps.h"
#include "ir/verify.h"
#include "ops/functions.h"
#include "passes/kernel_passes.h"
#include "passes/memory_passes.h"
#include "passes/optimizer.h"
#include "passes/pipeline.h"
#include "passes/update_passes.h"
#include "spec/fields.h"
#include "spec/parse_words.h"
#include "support/backends.h"

namespace tracestep {
namespace {

std::unique_ptr<Device> null_gpu(std::int64_t limit = 0) {
  return make_null_device({.traits = {.kind = DeviceKind::kCuda}, .memory_limit = limit});
}

RunSpec step_of(ExecutorKind executor, const char* precision, UpdateTime updates) {
  RunSpec out = testing::small_step(Mode::kStep, Granularity::kFused);
  out.executor = executor;
  out.precision = parse_precision("test", precision);
  out.updates = updates;
  return out;
}

std::vector<RunSpec> all_steps() {
  std::vector<RunSpec> out;
  for (ExecutorKind executor : kAll<ExecutorKind>) {
    for (const char* precision : {"fp32", "bf16", "fp16"}) {
      for (UpdateTime updates : kAll<UpdateTime>) {
        out.push_back(step_of(executor, precision, updates));
      }
    }
  }
  return out;
}

RunSpec offloaded(RunSpec spec) {
  spec.offload = Offload::kOptimizer;
  return spec;
}

// As an offloaded step runs, whose updates run beside backward.
RunSpec with_all_passes(RunSpec spec) {
  const std::vector<std::string> all = compile_passes();
  if (has_arena(spec.executor)) spec.compile_passes = {{all.begin(), all.end()}};
  return spec;
}

// Bytes of the states that are not scalars, and of the weights that have a narrow copy.
std::int64_t expected_host_bytes(const Program& program) {
  std::int64_t out = 0;
  for (ValueId id : program.leaves) {
    const Value& leaf = program.value(id);
    const bool is_moment = leaf.name.starts_with(kAdamwStates) && !leaf.type.shape.empty();
    const bool is_copied = program.find_leaf(shadow_name(leaf.name)) != kNoValue;
    if (is_moment || is_copied) out += leaf.type.bytes();
  }
  return out;
}

class OffloadedStepTest : public ::testing::Test {
 protected:
  void SetUp() override { ops::register_all(); }
};

TEST_F(OffloadedStepTest, BothMemoriesHoldWhatWasPredicted) {
  for (const RunSpec& spec : all_steps()) {
    SCOPED_TRACE(label_of(spec));
    const auto device = null_gpu();
    const Program before = step_program(with_all_passes(spec), *device);
    const Program program = step_program(offloaded(spec), *device);
    Store store(*device);
    const auto executor = make_executor(spec.executor, store, program);
    executor->run();
    const std::int64_t peak = device->allocator().stats().peak_requested_bytes;
    EXPECT_EQ(executor->predicted_peak_bytes(), peak);
    EXPECT_EQ(device->host_bytes(), host_bytes(program));
    EXPECT_EQ(host_bytes(program), expected_host_bytes(before));
    EXPECT_GE(host_bytes(program), 2 * parameter_count(program) * 4);
    // Leaves are alive all the time, so the peak falls by as much.
    const DeviceTraits& traits = device->traits();
    EXPECT_EQ(predicted_peak_bytes(spec.executor, before, traits), peak + host_bytes(program));
    EXPECT_EQ(map_memory(program, traits).leaf_bytes,
              map_memory(before, traits).leaf_bytes - host_bytes(program));
  }
}

TEST_F(OffloadedStepTest, TheLimitIsOfTheDevicesMemoryAlone) {
  for (const RunSpec& spec : all_steps()) {
    const Program program = step_program(offloaded(spec), *null_gpu());
    const std::int64_t peak =
        predicted_peak_bytes(spec.executor, program, {.kind = DeviceKind::kCuda});
    const auto run = [&](std::int64_t limit) {
      const auto device = null_gpu(limit);
      Store store(*device);
      make_executor(spec.executor, store, program)->run();
    };
    EXPECT_NO_THROW(run(peak)) << label_of(spec);
    EXPECT_THROW(run(peak - 1), OutOfMemory) << label_of(spec);
  }
}

TEST_F(OffloadedStepTest, AHostWithoutRoomIsNamedAndNothingIsLeftBehind) {
  const auto device = null_gpu();
  const Program program =
      step_program(offloaded(step_of(ExecutorKind::kEager, "fp32", UpdateTime::kEnd)), *device);
  device->host_allocator().set_limit(host_bytes(program) - 1);
  try {
    Store store(*device);
    store.bind(program);
    FAIL() << "nothing was thrown";
  } catch (const OutOfMemory& e) {
    EXPECT_EQ(e.code(), ErrorCode::kOutOfMemory);
    EXPECT_THAT(e.where(), ::testing::HasSubstr("host memory"));
  }
  EXPECT_EQ(device->host_bytes(), 0);
  EXPECT_EQ(device->allocator().stats().requested_bytes, 0);
}

// A program that reads the weights of another finds them where that one placed them.
TEST_F(OffloadedStepTest, ALeafStaysWhereItWasPlacedFirst) {
  const auto device = null_gpu();
  const RunSpec spec = step_of(ExecutorKind::kCompiled, "bf16", UpdateTime::kEnd);
  RunSpec forward = spec;
  forward.mode = Mode::kInference;
  Store store(*device);
  store.bind(step_program(offloaded(spec), *device));
  const std::int64_t on_host = device->host_bytes();
  store.bind(step_program(offloaded(forward), *device));
  EXPECT_EQ(device->host_bytes(), on_host);
  EXPECT_EQ(store.at("lm_head.weight").memory, Memory::kHost);
}

TEST_F(OffloadedStepTest, ResultsAreTheSameBitsOnEveryBackEnd) {
  for (const testing::Backend& backend : testing::backends_under_test()) {
    for (const RunSpec& spec : all_steps()) {
      const auto plain = testing::results_of(spec.executor, spec, *backend.make({}));
      const auto device = backend.make({});
      EXPECT_EQ(testing::results_of(spec.executor, offloaded(spec), *device), plain)
          << backend.name << " " << label_of(spec);
      const Program program = step_program(offloaded(spec), *device);
      EXPECT_EQ(host_bytes(program) > 0, device->traits().has_own_memory()) << backend.name;
    }
  }
}

// --- activations --------------------------------------------------------------------------------
std::vector<RunSpec> steps_that_keep() {
  std::vector<RunSpec> out;
  for (ExecutorKind executor : {ExecutorKind::kEager, ExecutorKind::kCompiled}) {
    for (const char* recompute : {"none", "blocks", "layers.*.ffn"}) {
      for (const char* precision : {"fp32", "bf16"}) {
        RunSpec spec = step_of(executor, precision, UpdateTime::kEnd);
        spec.model.layers = 4;
        spec.recompute = parse_recomputation("test", recompute);
        out.push_back(spec);
      }
    }
  }
  return out;
}

std::int64_t moved_bytes(const Program& program) {
  std::int64_t out = 0;
  for (ValueId id : program.leaves) {
    const Value& leaf = program.value(id);
    if (leaf.name.starts_with(kOffloadedPrefix)) out += leaf.type.bytes();
  }
  return out;
}

TEST_F(OffloadedStepTest, ActivationsAreInEachMemoryAsPredicted) {
  for (RunSpec spec : steps_that_keep()) {
    spec.shape = {.batch = 8, .context = 512};  // more than workspaces
    spec.model.d_model = 256;
    SCOPED_TRACE(label_of(spec));
    const auto device = null_gpu();
    const Program before = step_program(spec, *device);
    spec.offload = Offload::kActivations;
    const Program program = step_program(spec, *device);
    Store store(*device);
    const auto executor = make_executor(spec.executor, store, program);
    executor->run();
    const std::int64_t peak = device->allocator().stats().peak_requested_bytes;
    EXPECT_EQ(executor->predicted_peak_bytes(), peak);
    EXPECT_EQ(device->host_bytes(), host_bytes(program));
    EXPECT_EQ(host_bytes(program), moved_bytes(program));
    if (!has_arena(spec.executor)) {  // copies are placed before kernels are joined
      EXPECT_LT(peak, predicted_peak_bytes(spec.executor, before, device->traits()));
    }
    EXPECT_EQ(total_cost(program).flops, total_cost(before).flops);
    // Three blocks of four keep something; the last one's backward follows its forward.
    const std::int64_t residual = 4 * spec.shape.batch * spec.shape.context * spec.model.d_model;
    if (spec.recompute == Recomputation::blocks()) {
      EXPECT_EQ(moved_bytes(program), 3 * residual);
    }
    spec.offload = Offload::kBoth;
    EXPECT_GT(host_bytes(step_program(spec, *device)), host_bytes(program));
  }
}

// In guarded memory copies run as late as the plan lets them.
TEST_F(OffloadedStepTest, ActivationsThatWereAwayAreTheSameBits) {
  for (const testing::Backend& backend : testing::backends_under_test()) {
    for (RunSpec spec : steps_that_keep()) {
      const auto device = backend.make({.threads = 2, .guarded = true});
      spec.executor = ExecutorKind::kEager;
      const Program plain = step_program(spec, *device);
      const Program moved = offload_activations(plain, device->traits());
      EXPECT_GT(moved_bytes(moved), 0);
      verify(materialize(moved), VerifyStage::kMaterialized);
      for (const ExecutorKind executor : {ExecutorKind::kEager, ExecutorKind::kArena}) {
        EXPECT_EQ(testing::results_of(executor, materialize(moved), *backend.make({})),
                  testing::results_of(executor, plain, *backend.make({})))
            << backend.name << " " << label_of(spec);
      }
      EXPECT_EQ(testing::results_of(ExecutorKind::kEager, materialize(moved), *device),
                testing::results_of(ExecutorKind::kEager, plain, *backend.make({})));
    }
  }
}

// --- states that pass through the device --------------------------------------------------------
constexpr std::int64_t kAny = std::int64_t{1} << 40;

std::ptrdiff_t copies(const Program& program, std::string_view op) {
  return std::ranges::count_if(program.nodes,
                               [&](const Node& node) { return node.op->name == op; });
}

// In guarded memory copies run as late as the plan lets them.
TEST_F(OffloadedStepTest, StatesThatPassThroughTheDeviceAreTheSameBits) {
  std::size_t turn = 0;
  for (const testing::Backend& backend : testing::backends_under_test()) {
    for (RunSpec spec : all_steps()) {
      const auto device = backend.make({.threads = 2, .guarded = true});
      spec.optimizer.moments = kAll<Moments>[turn++ % std::size(kAll<Moments>)];
      for (const bool is_joined : {true, false}) {
        if (has_arena(spec.executor)) spec.compile_passes = {{"shadow", "merge", "join"}};
        if (has_arena(spec.executor) && !is_joined) spec.compile_passes->erase("join");
        const Program plain = step_program(spec, *device);
        const Program moved = stream_states(offload(plain), 1, kAny);
        verify(moved, VerifyStage::kMaterialized);
        const bool is_alone = spec.precision.autocast && has_arena(spec.executor) && !is_joined;
        if (!is_alone) {
          EXPECT_GT(copies(moved, "offload"), 8) << label_of(spec);
        }
        const auto expected = testing::results_of(spec.executor, plain, *backend.make({}));
        EXPECT_EQ(testing::results_of(spec.executor, moved, *backend.make({})), expected)
            << backend.name << " " << label_of(spec);
        EXPECT_EQ(testing::results_of(spec.executor, moved, *device), expected)
            << backend.name << " guarded " << label_of(spec);
      }
    }
  }
}

RunSpec large_step() {
  RunSpec out = testing::small_step(Mode::kStep, Granularity::kFused);
  out.model = {.vocab = 1000, .d_model = 512, .d_ff = 2048, .layers = 4, .heads = 8};
  out.shape = {.batch = 4, .context = 256};
  out.executor = ExecutorKind::kCompiled;
  out.attention = AttentionForm::kFlash;
  return out;
}

TEST_F(OffloadedStepTest, ACompiledStepMovesThemBesideItsBackward) {
  RunSpec spec = offloaded(large_step());
  const auto device = null_gpu();
  spec.precision = parse_precision("test", "bf16");
  const Program program = step_program(spec, *device);
  EXPECT_GT(copies(program, "reload"), 50);
  EXPECT_EQ(copies(program, "reload"), copies(program, "offload"));
  const auto last_product = std::ranges::find_if(
      program.nodes.rbegin(), program.nodes.rend(),
      [](const Node& node) { return node.op->kernel_class == KernelClass::kGemm; });
  const auto beside = std::count_if(last_product, program.nodes.rend(),
                                    [](const Node& node) { return node.op->name == "offload"; });
  EXPECT_GT(beside, copies(program, "offload") / 2);
  // Where all wait for the norm they run beside each other.
  spec.optimizer.clip = 1.0;
  const Program clipped = step_program(spec, *device);
  EXPECT_EQ(copies(clipped, "offload"), copies(program, "offload"));
  spec.compile_passes = {{"shadow", "merge", "join"}};
  EXPECT_EQ(copies(step_program(spec, *device), "offload"), 0);
  spec.compile_passes = {};
  spec.executor = ExecutorKind::kEager;
  EXPECT_EQ(copies(step_program(spec, *device), "offload"), 0);
}

template <class T>
T one_of(const CounterRng& rng, std::uint64_t& index, std::initializer_list<T> of) {
  return *(of.begin() + rng.below(index++, of.size()));
}

// Bytes of both memories over combinations of what moves, when and in which dtype.
TEST_F(OffloadedStepTest, RandomStepsTakeWhatWasPredictedInBothMemories) {
  const CounterRng rng(7, "offloaded steps");
  std::uint64_t index = 0;
  int streamed = 0;
  for (int i = 0; i < 30; ++i) {
    RunSpec spec = large_step();
    spec.executor = one_of(rng, index,
                           {ExecutorKind::kEager, ExecutorKind::kArena, ExecutorKind::kCompiled,
                            ExecutorKind::kCompiled});
    spec.precision =
        parse_precision("test", one_of(rng, index, {"fp32", "bf16", "bf16", "bf16-pure"}));
    spec.updates = one_of(rng, index, {UpdateTime::kEnd, UpdateTime::kEnd, UpdateTime::kEarly});
    spec.offload = one_of(rng, index, {Offload::kOptimizer, Offload::kBoth});
    spec.optimizer.moments = one_of(rng, index, {Moments::kF32, Moments::kBF16, Moments::k8Bit});
    spec.optimizer.clip = one_of(rng, index, {0.0, 1.0});
    spec.recompute = parse_recomputation("test", one_of(rng, index, {"none", "blocks"}));
    spec.accumulate = one_of<std::int64_t>(rng, index, {1, 1, 3});
    spec.grad_accum_dtype = one_of(rng, index, {GradientSums::kF32, GradientSums::kLow});
    spec.model.layers = one_of<std::int64_t>(rng, index, {1, 2, 5});
    spec.model.d_model = one_of<std::int64_t>(rng, index, {256, 512, 1024});
    SCOPED_TRACE(label_of(spec));
    const auto device = null_gpu();
    const Program program = step_program(spec, *device);
    streamed += copies(program, "reload") > 0 && spec.offload == Offload::kOptimizer ? 1 : 0;
    Store store(*device);
    const auto executor = make_executor(spec.executor, store, program);
    executor->run();
    EXPECT_EQ(executor->predicted_peak_bytes(), device->allocator().stats().peak_requested_bytes);
    EXPECT_EQ(device->host_bytes(), host_bytes(program));
    spec.offload = Offload::kNone;
    const Program plain = step_program(spec, *device);
    EXPECT_EQ(total_cost(program).flops, total_cost(plain).flops);
  }
  EXPECT_GT(streamed, 2);
}

}  // namespace
}  // namespace tracestep
