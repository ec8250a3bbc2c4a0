#include "exec/eager.h"

#include <gtest/gtest.h>

#include "backends/null/null_device.h"
#include "backends/reference/reference_device.h"
#include "ir/parse.h"
#include "ops/functions.h"
#include "spec/step_program.h"
#include "support/backends.h"
#include "support/host_values.h"
#include "weights/model_store.h"

namespace tracestep {
namespace {

using testing::to_doubles;

constexpr std::int64_t kOddBytes = 1234;
const std::vector<double> kRate{0.01};

RunSpec small_step(Mode mode, Granularity ops) {
  RunSpec spec;
  spec.model = {.vocab = 31, .d_model = 16, .d_ff = 24, .layers = 2, .heads = 2};
  spec.shape = {.batch = 2, .context = 7};
  spec.mode = mode;
  spec.ops = ops;
  spec.verify = true;
  return spec;
}

// Random token ids; a learning rate of 0.01 for the rank-0 inputs.
void set_inputs(Executor& executor) {
  for (ValueId id : executor.program().leaves) {
    const Value& leaf = executor.program().value(id);
    if (leaf.leaf != LeafKind::kInput) continue;
    executor.set_input(leaf.name, leaf.type.shape.empty()
                                      ? testing::from_doubles(leaf.type.dtype, {}, kRate)
                                      : testing::random_tensor(leaf.type, leaf.name, 0.0, 30.0));
  }
}

class EagerTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { ops::register_all(); }
  static std::unique_ptr<Device> make(bool guarded = false) {
    if (GetParam() == "null") return make_null_device();
    return testing::backend_named(GetParam()).make({.guarded = guarded});
  }
};

TEST_P(EagerTest, StatesStartAtZeroAlsoInUsedMemory) {
  const auto device = make();
  const Program program = step_program(small_step(Mode::kStep, Granularity::kFused), *device);
  for (int round = 0; round < 2; ++round) {
    Store store(*device);
    store.bind(program);
    for (const std::string& name : store.names(LeafKind::kState)) {
      const Type& type = store.at(name).type;
      EXPECT_EQ(testing::max_abs(to_doubles(store.get(name))), 0.0) << name;
      store.set(name, testing::random_tensor(type, name, 1.0, 2.0));
    }
  }
}

TEST_P(EagerTest, TheMeasuredPeakIsThePredictedOneToTheByte) {
  for (Mode mode : kAll<Mode>) {
    for (Granularity ops : {Granularity::kPrimitive, Granularity::kFused}) {
      const auto device = make();
      Store store(*device);
      EagerExecutor executor(store, step_program(small_step(mode, ops), *device));
      initialize_parameters(store, 1);
      set_inputs(executor);
      device->allocator().reset_peak();
      for (int i = 0; i < 3; ++i) executor.run();
      EXPECT_EQ(device->allocator().stats().peak_requested_bytes, executor.predicted_peak_bytes())
          << name_of(mode) << " " << name_of(ops);
    }
  }
}

TEST_P(EagerTest, APauseComesBeforeItsNodeWithWhatIsAliveThere) {
  const auto device = make();
  Store store(*device);
  EagerExecutor executor(store,
                         step_program(small_step(Mode::kStep, Granularity::kFused), *device));
  initialize_parameters(store, 1);
  set_inputs(executor);
  const BufferPlan& buffer_plan = executor.buffer_plan();
  const auto middle = static_cast<NodeId>(executor.program().nodes.size() / 2);
  std::int64_t planned = 0;
  for (const Buffer& b : buffer_plan.buffers) {
    if (b.first == kNoNode || (b.first < middle && b.last >= middle)) planned += b.bytes;
  }
  std::vector<std::int64_t> live;
  const auto look = [&] { live.push_back(device->allocator().stats().requested_bytes); };
  executor.observe({.pauses = {{middle, look}, {static_cast<NodeId>(1 << 20), look}}});
  executor.run();
  ASSERT_EQ(live.size(), 2u);  // one beyond the last node comes at the end
  EXPECT_EQ(live[0], planned);
  executor.run();
  EXPECT_EQ(live[2], planned);
}

TEST_P(EagerTest, AnUnplannedAllocationIsNoticed) {
  const auto device = make();
  Store store(*device);
  EagerExecutor executor(store,
                         step_program(small_step(Mode::kStep, Granularity::kFused), *device));
  initialize_parameters(store, 1);
  set_inputs(executor);
  void* planted = device->allocator().allocate(kOddBytes, {Category::kTemporary, 3, "planted"});
  device->allocator().reset_peak();
  executor.run();
  EXPECT_EQ(device->allocator().stats().peak_requested_bytes,
            executor.predicted_peak_bytes() + kOddBytes);
  device->allocator().free(planted);
}

TEST_P(EagerTest, EveryBufferIsAllocatedWithThePredictedBytesAndCategory) {
  const auto device = make();
  Store store(*device);
  EagerExecutor executor(store,
                         step_program(small_step(Mode::kStep, Granularity::kFused), *device));
  initialize_parameters(store, 1);
  set_inputs(executor);
  Recorder recorder({.spans = true, .memory = true});
  device->allocator().set_recorder(&recorder);
  executor.observe({.recorder = &recorder});
  executor.run();
  device->allocator().set_recorder(nullptr);
  std::size_t matched = 0;
  for (const MemoryEvent& e : recorder.memory_events()) {
    if (e.action != MemoryAction::kAlloc || e.category == Category::kWorkspace) continue;
    ASSERT_GE(e.node, 0);
    bool found = false;
    for (int b : executor.buffer_plan().allocated_at[static_cast<std::size_t>(e.node)]) {
      const Buffer& buffer = executor.buffer_plan().buffers[static_cast<std::size_t>(b)];
      found = found || (buffer.bytes == e.requested_bytes && buffer.category == e.category);
    }
    EXPECT_TRUE(found) << e.node << " " << e.requested_bytes;
    ++matched;
  }
  std::size_t planned = 0;
  for (const Buffer& b : executor.buffer_plan().buffers) planned += b.first == kNoNode ? 0 : 1;
  EXPECT_EQ(matched, planned);
  EXPECT_EQ(recorder.spans().size(), static_cast<std::size_t>(executor.launches()));
}

TEST_P(EagerTest, NothingIsLeftBehindAndTheSteadyStateMapsNothing) {
  const auto device = make();
  {
    Store store(*device);
    EagerExecutor executor(store,
                           step_program(small_step(Mode::kStep, Granularity::kFused), *device));
    initialize_parameters(store, 1);
    set_inputs(executor);
    executor.run();
    const std::int64_t mapped = device->allocator().stats().map_count;
    for (int i = 0; i < 5; ++i) executor.run();
    EXPECT_EQ(device->allocator().stats().map_count, mapped);
  }
  EXPECT_EQ(device->allocator().stats().requested_bytes, 0);
}

TEST_P(EagerTest, ALimitBelowThePredictedPeakIsOutOfMemoryAndAtItIsNot) {
  const auto device = make();
  const Program program = step_program(small_step(Mode::kStep, Granularity::kFused), *device);
  std::int64_t peak = 0;
  {
    Store store(*device);
    peak = EagerExecutor(store, program).predicted_peak_bytes();
  }
  for (const std::int64_t limit : {peak, peak - 1}) {
    const auto fresh = make();
    fresh->allocator().set_limit(limit);
    Store store(*fresh);
    EagerExecutor executor(store, program);
    initialize_parameters(store, 1);
    set_inputs(executor);
    if (limit == peak) {
      EXPECT_NO_THROW(executor.run());
    } else {
      EXPECT_THROW(executor.run(), OutOfMemory);
      fresh->allocator().set_limit(0);
      EXPECT_NO_THROW(executor.run()) << "a failed run leaves a usable executor";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Planned, EagerTest, ::testing::Values("null"));
INSTANTIATE_TEST_SUITE_P(Devices, EagerTest, ::testing::ValuesIn(testing::backend_names()));

class EagerNumbersTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { ops::register_all(); }
};
INSTANTIATE_TEST_SUITE_P(Devices, EagerNumbersTest, ::testing::ValuesIn(testing::backend_names()));

TEST_P(EagerNumbersTest, PrimitiveAndFusedProgramsAgree) {
  std::vector<std::vector<double>> losses;
  for (Granularity ops : {Granularity::kPrimitive, Granularity::kFused}) {
    const auto device = testing::backend_named(GetParam()).make({});
    Store store(*device);
    EagerExecutor executor(store, step_program(small_step(Mode::kStep, ops), *device));
    initialize_parameters(store, 1);
    set_inputs(executor);
    std::vector<double> trace;
    for (int i = 0; i < 5; ++i) {
      executor.run();
      trace.push_back(executor.scalar("loss"));
    }
    losses.push_back(trace);
  }
  for (std::size_t i = 0; i < losses[0].size(); ++i) {
    EXPECT_NEAR(losses[0][i], losses[1][i], 2e-5 * losses[0][i]);
  }
  EXPECT_LT(losses[0].back(), losses[0].front());
}

TEST_P(EagerNumbersTest, AnyNumberOfThreadsGivesTheSameBits) {
  std::vector<std::byte> expected;
  for (int threads : {1, 2, 3, 7, 16}) {
    const auto device = testing::backend_named(GetParam()).make({.threads = threads});
    Store store(*device);
    EagerExecutor executor(store,
                           step_program(small_step(Mode::kStep, Granularity::kFused), *device));
    initialize_parameters(store, 1);
    set_inputs(executor);
    std::vector<std::byte> bytes;
    for (int i = 0; i < 3; ++i) executor.run();
    for (const auto& [name, tensor] : parameters_of(store)) {
      bytes.insert(bytes.end(), tensor.bytes.begin(), tensor.bytes.end());
    }
    const auto loss = executor.output("loss").bytes;
    bytes.insert(bytes.end(), loss.begin(), loss.end());
    if (expected.empty()) expected = bytes;
    EXPECT_TRUE(bytes == expected) << threads << " threads";
  }
}

TEST(EagerErrorsTest, AnOpWithoutAKernelAndAWrongInputAreNamed) {
  ops::register_all();
  const auto device = make_reference_device();
  Store store(*device);
  EXPECT_THROW(EagerExecutor(store, parse_program(R"(program "p" {
    parameter %x : f64[2]
    %0 : f64[2] = all_reduce(%x) {ranks=2}
    output "y" = %0
  })")),
               Error);
  EagerExecutor executor(store, parse_program(R"(program "q" {
    input %x : f64[2]
    %0 : f64[2] = neg(%x)
    output "y" = %0
  })"));
  EXPECT_THROW(executor.set_input("z", HostTensor::zeros(DType::kF64, {2})), Error);
  EXPECT_THROW(executor.set_input("x", HostTensor::zeros(DType::kF64, {3})), Error);
}

}  // namespace
}  // namespace tracestep
