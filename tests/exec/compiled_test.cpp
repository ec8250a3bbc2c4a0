// The compiled executor: the bits of the eager one, in an arena, and nothing allocated in a run.
#include "exec/compiled.h"

#include <gtest/gtest.h>

#include <cmath>

#include "analysis/cost.h"
#include "backends/null/null_device.h"
#include "exec/eager.h"
#include "ops/functions.h"
#include "spec/step_program.h"
#include "support/backends.h"
#include "support/faulting_device.h"
#include "support/host_values.h"
#include "train/model_store.h"

namespace tracestep {
namespace {

RunSpec small_step(Mode mode, Granularity ops, AttentionForm attention = AttentionForm::kNaive) {
  RunSpec spec;
  spec.model = {.vocab = 31, .d_model = 16, .d_ff = 24, .layers = 2, .heads = 2};
  spec.shape = {.batch = 2, .context = 7};
  spec.mode = mode;
  spec.ops = ops;
  spec.attention = attention;
  return spec;
}

// Random token ids, others for another round; a learning rate of 0.01 for the rank-0 inputs.
void set_inputs(Executor& executor, int round = 0) {
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

// Every output of three runs on three batches, and the parameters after them.
std::vector<std::vector<std::byte>> results(ExecutorKind kind, const RunSpec& spec,
                                            Device& device) {
  Store store(device);
  const auto executor = make_executor(kind, store, step_program(spec, device));
  initialize_parameters(store, 1);
  std::vector<std::vector<std::byte>> out;
  for (int round = 0; round < 3; ++round) {
    set_inputs(*executor, round);
    executor->run();
    for (const Output& o : executor->program().outputs) {
      out.push_back(executor->output(o.name).bytes);
    }
  }
  for (const auto& [name, tensor] : parameters_of(store)) out.push_back(tensor.bytes);
  return out;
}

class CompiledTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { ops::register_all(); }
  static std::unique_ptr<Device> make(std::int64_t limit = 0) {
    if (GetParam() == "null") return make_null_device({.memory_limit = limit});
    return testing::backend_named(GetParam()).make({.memory_limit = limit});
  }
};

class CompiledNumbersTest : public CompiledTest {};

TEST_P(CompiledNumbersTest, ItComputesTheBitsOfTheEagerOne) {
  for (Mode mode : kAllModes) {
    for (Granularity ops : {Granularity::kPrimitive, Granularity::kFused}) {
      for (AttentionForm attention : {AttentionForm::kNaive, AttentionForm::kFlash}) {
        for (const char* precision : {"fp32", "bf16"}) {
          RunSpec spec = small_step(mode, ops, attention);
          spec.precision = parse_precision("test", precision);
          const auto eager_device = make(), compiled_device = make();
          EXPECT_EQ(results(ExecutorKind::kCompiled, spec, *compiled_device),
                    results(ExecutorKind::kEager, spec, *eager_device))
              << name_of(mode) << " " << name_of(ops) << " " << name_of(attention) << " "
              << precision;
        }
      }
    }
  }
}

TEST_P(CompiledNumbersTest, APauseSeesTheValuesThatTheEagerOneShows) {
  const auto values = [&](ExecutorKind kind) {
    const auto device = make();
    Store store(*device);
    const auto executor = make_executor(
        kind, store, step_program(small_step(Mode::kStep, Granularity::kFused), *device));
    initialize_parameters(store, 1);
    set_inputs(*executor);
    std::vector<std::optional<std::vector<std::byte>>> out;
    std::vector<Executor::Pause> pauses;
    const auto count = static_cast<ValueId>(executor->program().values.size());
    for (NodeId id : {5, 40, 1 << 20}) {
      pauses.push_back({id, [&] {
                          for (ValueId v = 0; v < count; ++v) {
                            const auto value = executor->value(v);
                            out.push_back(value ? std::optional(value->bytes) : std::nullopt);
                          }
                        }});
    }
    executor->set_pauses(pauses);
    executor->run();
    executor->run();
    return out;
  };
  EXPECT_EQ(values(ExecutorKind::kCompiled), values(ExecutorKind::kEager));
}

TEST_P(CompiledNumbersTest, ALaunchThatFailsLeavesItUsable) {
  testing::FaultingDevice device(make(), testing::FaultKind::kLostAtLaunch, 20);
  Store store(device);
  CompiledExecutor executor(
      store, step_program(small_step(Mode::kForwardBackward, Granularity::kFused), device));
  initialize_parameters(store, 1);
  set_inputs(executor);
  EXPECT_THROW(executor.run(), DeviceError);
  EXPECT_FALSE(executor.value(executor.program().find_output("loss")).has_value());
  device.repair();
  executor.run();
  EXPECT_TRUE(std::isfinite(executor.scalar("loss")));
}

TEST_P(CompiledTest, ThePeakIsThePredictedOneAndARunAllocatesNothing) {
  for (Mode mode : kAllModes) {
    const auto device = make();
    {
      Store store(*device);
      const Program program = step_program(small_step(mode, Granularity::kFused), *device);
      CompiledExecutor executor(store, program);
      EXPECT_EQ(executor.predicted_peak_bytes(),
                predicted_peak_bytes(ExecutorKind::kCompiled, program, device->traits()));
      initialize_parameters(store, 1);
      set_inputs(executor);
      const std::int64_t before = device->allocator().stats().allocation_count;
      for (int i = 0; i < 3; ++i) executor.run();
      EXPECT_EQ(device->allocator().stats().allocation_count, before) << name_of(mode);
      EXPECT_EQ(device->allocator().stats().peak_requested_bytes, executor.predicted_peak_bytes());
    }
    EXPECT_EQ(device->allocator().stats().requested_bytes, 0);
  }
}

TEST_P(CompiledTest, OutOfMemoryIsNoticedWhenItIsMade) {
  std::int64_t peak = 0;
  {
    const auto device = make();
    Store store(*device);
    const Program program = step_program(small_step(Mode::kStep, Granularity::kFused), *device);
    peak = CompiledExecutor(store, program).predicted_peak_bytes();
  }
  for (const std::int64_t limit : {peak, peak - 1}) {
    const auto device = make(limit);
    {
      Store store(*device);
      const Program program = step_program(small_step(Mode::kStep, Granularity::kFused), *device);
      if (limit == peak) {
        EXPECT_NO_THROW(CompiledExecutor(store, program));
      } else {
        EXPECT_THROW(CompiledExecutor(store, program), OutOfMemory);
      }
    }
    EXPECT_EQ(device->allocator().stats().requested_bytes, 0);
  }
}

// What each node asks for and gives back, in order.
struct Request {
  MemoryAction action;
  Category category;
  NodeId node;
  std::int64_t bytes;
  bool operator==(const Request&) const = default;
};

TEST_P(CompiledTest, ARecordedRunHasTheSpansAndTheMemoryEventsOfTheEagerOne) {
  const auto requests = [&](ExecutorKind kind) {
    const auto device = make();
    Store store(*device);
    const auto executor = make_executor(
        kind, store, step_program(small_step(Mode::kStep, Granularity::kFused), *device));
    initialize_parameters(store, 1);
    set_inputs(*executor);
    executor->run();
    executor->release_outputs();
    Recorder recorder({.spans = true, .memory = true});
    device->allocator().set_recorder(&recorder);
    executor->run(&recorder);
    executor->release_outputs();
    device->allocator().set_recorder(nullptr);
    EXPECT_EQ(std::ssize(recorder.spans()), executor->launches());
    std::vector<Request> out;
    for (const MemoryEvent& e : recorder.memory_events()) {
      if (e.action != MemoryAction::kAlloc && e.action != MemoryAction::kFree) continue;
      out.push_back({e.action, e.category, e.node, e.requested_bytes});
    }
    return std::pair(out, recorder.peak_requested_bytes());
  };
  EXPECT_EQ(requests(ExecutorKind::kCompiled), requests(ExecutorKind::kEager));
}

INSTANTIATE_TEST_SUITE_P(Planned, CompiledTest, ::testing::Values("null"));
INSTANTIATE_TEST_SUITE_P(Devices, CompiledTest, ::testing::ValuesIn(testing::backend_names()));
INSTANTIATE_TEST_SUITE_P(Devices, CompiledNumbersTest,
                         ::testing::ValuesIn(testing::backend_names()));

// A device that captures: what it launched meanwhile is issued again by a replay, and by nothing
// else.
class CapturingDevice final : public Device {
 public:
  const std::string& name() const override { return device_->name(); }
  const DeviceTraits& traits() const override { return device_->traits(); }
  Allocator& allocator() override { return device_->allocator(); }
  bool has_kernel(const OpDef& op) const override { return device_->has_kernel(op); }
  std::unique_ptr<PreparedKernel> prepare(KernelSpec spec) override {
    return std::make_unique<Kernel>(*this, device_->prepare(std::move(spec)));
  }
  bool supports(DType dtype) const override { return device_->supports(dtype); }
  void copy_in(void* to, const void* from, std::int64_t bytes) override {
    device_->copy_in(to, from, bytes);
  }
  void copy_out(void* to, const void* from, std::int64_t bytes) override {
    device_->copy_out(to, from, bytes);
  }
  void zero(void* data, std::int64_t bytes) override { device_->zero(data, bytes); }
  void* stream() override { return device_->stream(); }
  std::unique_ptr<CapturedWork> capture(const std::function<void()>& issue) override {
    auto out = std::make_unique<Work>(*this);
    capturing_ = &out->launches;
    issue();
    capturing_ = nullptr;
    return out;
  }

  int launches = 0, replays = 0;

 private:
  using Launches = std::vector<std::function<void()>>;

  class Kernel final : public PreparedKernel {
   public:
    Kernel(CapturingDevice& device, std::unique_ptr<PreparedKernel> inner)
        : device_(device), inner_(std::move(inner)) {}
    void launch(const LaunchOperands& at, const LaunchContext& context) override {
      if (device_.capturing_ == nullptr) {
        ++device_.launches;
        return inner_->launch(at, context);
      }
      const std::vector<void*> inputs(at.inputs.begin(), at.inputs.end());
      const std::vector<void*> outputs(at.outputs.begin(), at.outputs.end());
      device_.capturing_->push_back([this, inputs, outputs, workspace = at.workspace, context] {
        inner_->launch({inputs, outputs, workspace}, context);
      });
    }

   private:
    CapturingDevice& device_;
    const std::unique_ptr<PreparedKernel> inner_;
  };

  struct Work final : CapturedWork {
    explicit Work(CapturingDevice& to) : device(to) {}
    void launch() override {
      ++device.replays;
      for (const auto& one : launches) one();
    }
    CapturingDevice& device;
    Launches launches;
  };

  const std::unique_ptr<Device> device_ = testing::backend_named("cpu").make({});
  Launches* capturing_ = nullptr;
};

TEST(CompiledCaptureTest, TheFirstRunIsCapturedAndTheOthersReplayIt) {
  ops::register_all();
  const RunSpec spec = small_step(Mode::kStep, Granularity::kFused);
  const auto plain = testing::backend_named("cpu").make({});
  CapturingDevice capturing;
  EXPECT_EQ(results(ExecutorKind::kCompiled, spec, capturing),
            results(ExecutorKind::kEager, spec, *plain));
  EXPECT_EQ(capturing.replays, 2);
  EXPECT_EQ(capturing.launches, launch_count(step_program(spec, capturing)));
}

TEST(CompiledCaptureTest, WhoeverListensToLaunchesGetsThemOneByOne) {
  ops::register_all();
  CapturingDevice device;
  Store store(device);
  CompiledExecutor executor(
      store, step_program(small_step(Mode::kForwardBackward, Granularity::kFused), device));
  initialize_parameters(store, 1);
  set_inputs(executor);
  Recorder recorder({.spans = true});
  executor.run(&recorder);
  executor.run();
  executor.run(&recorder);
  EXPECT_EQ(device.replays, 0);
  executor.run();
  EXPECT_EQ(device.replays, 1);
}

}  // namespace
}  // namespace tracestep
