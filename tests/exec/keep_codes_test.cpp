// Steps whose updates write the codes of weights for the next step: the same bits, and the bytes
// that were predicted.
#include <gtest/gtest.h>

#include <algorithm>

#include "analysis/cost.h"
#include "backends/null/null_device.h"
#include "exec/small_steps.h"
#include "ir/parse.h"
#include "ops/functions.h"
#include "passes/form_passes.h"
#include "passes/pipeline.h"
#include "spec/fields.h"
#include "spec/micro_batches.h"
#include "support/backends.h"
#include "support/host_values.h"
#include "support/run_program.h"
#include "weights/model_store.h"

namespace tracestep {
namespace {

constexpr DeviceTraits kGpu{.kind = DeviceKind::kCuda};

RunSpec step_in_8_bits() {
  RunSpec out = testing::small_step(Mode::kStep, Granularity::kFused);
  out.model = {.vocab = 31, .d_model = 32, .d_ff = 48, .layers = 2, .heads = 2};
  out.shape = {.batch = 2, .context = 8};
  out.executor = ExecutorKind::kCompiled;
  out.precision = parse_precision("test", "fp8");
  out.fp8_products = Float8Products::kAll;
  return out;
}

std::vector<RunSpec> all_steps() {
  std::vector<RunSpec> out(5, step_in_8_bits());
  out[1].optimizer.clip = 0.5;
  out[1].optimizer.moments = Moments::kBF16;
  out[2].optimizer.guard_finite = true;
  out[3].compile_passes = {"shadow"};  // a product for each weight
  out[4].recompute = Recomputation::blocks();
  for (std::size_t i : {0, 1, 4}) {
    out.push_back(out[i]);
    out.back().accumulate = 3;
  }
  return out;
}

// Takes the passes of a GPU, whatever the device: ops without a kernel are decomposed.
Program program_of(const RunSpec& spec, const Device& device, bool keeps) {
  PassContext context{.traits = kGpu};
  if (!keeps) context.disabled.insert("keep_codes");
  const auto make = [&](const Program& program, const RunSpec& run, PassContext own) {
    own.traits = kGpu;
    own.has_kernel = [&](const OpDef& op) { return op.only_on_gpus || device.has_kernel(op); };
    return run_pipeline(program, run, own);
  };
  return spec.accumulate > 1 ? step_of_micro_batches(spec, context, make).program
                             : make(forward_program(spec), spec, context).program;
}

// The program for a device that has all kernels.
Program for_gpu(bool keeps) {
  const RunSpec spec = step_in_8_bits();
  PassContext context{.traits = kGpu};
  if (!keeps) context.disabled.insert("keep_codes");
  return run_pipeline(forward_program(spec), spec, context).program;
}

std::ptrdiff_t count_of(const Program& program, std::string_view op) {
  return std::ranges::count(program.nodes, op, [](const Node& node) { return node.op->name; });
}

class KeepCodesTest : public ::testing::Test {
 protected:
  void SetUp() override { ops::register_all(); }
};

TEST_F(KeepCodesTest, StepsHaveTheSameBits) {
  for (const testing::Backend& backend : testing::backends_under_test()) {
    for (const RunSpec& spec : all_steps()) {
      SCOPED_TRACE(backend.name + " " + label_of(spec));
      const auto guarded = backend.make({.guarded = true}), free = backend.make({});
      const auto results = [&](bool keeps, Device& device) {
        const Program program = program_of(spec, device, keeps);
        EXPECT_EQ(count_of(program, "adamw_codes") > 0, keeps);
        return testing::results_of(spec.executor, testing::executable(program, device), device);
      };
      const auto plain = results(false, *free);
      EXPECT_EQ(results(true, *free), plain);
      EXPECT_EQ(results(true, *guarded), plain) << "guarded";
    }
  }
}

TEST_F(KeepCodesTest, CodesTakeThePlaceOfNarrowCopies) {
  const Program program = for_gpu(true), without = for_gpu(false);
  EXPECT_EQ(count_of(program, "refresh_codes"), 3);  // of blocks of three, of two, and alone
  EXPECT_EQ(count_of(program, "adamw_codes"), 3);
  std::vector<std::string> narrow;
  for (ValueId id : program.leaves) {
    const Value& leaf = program.value(id);
    if (leaf.role == Role::kWeightCast) narrow.push_back(leaf.name);
  }
  const std::vector<std::string> expected{
      "codes.found.1",
      "codes.found.2",
      "codes.found.3",
      "codes.layers.0.attn.output_proj.weight",
      "codes.layers.0.attn.output_proj.weight.transposed",
      "codes.layers.0.attn.qkv_proj.weight",
      "codes.layers.0.attn.qkv_proj.weight.transposed",
  };
  std::ranges::sort(narrow);
  EXPECT_TRUE(std::ranges::includes(narrow, expected)) << ::testing::PrintToString(narrow);
  for (const std::string& name : narrow) {
    EXPECT_FALSE(name.starts_with("shadow.layers.0.ffn")) << name;
  }
  // Two bytes for each element, as narrow copies have.
  const auto bytes = [](const Program& p) {
    std::int64_t out = 0;
    for (ValueId id : p.leaves) {
      if (p.value(id).role == Role::kWeightCast && p.type(id).shape.rank() == 2) {
        out += p.value(id).name.starts_with(kFoundPrefix) ? 0 : p.type(id).bytes();
      }
    }
    return out;
  };
  EXPECT_EQ(bytes(program), bytes(without));
  // Eight quantizations less, and six launches more.
  EXPECT_EQ(launch_count(program), launch_count(without) - 2);
}

// As many launches as in a step of one batch check and write codes, whatever the micro-batches are.
TEST_F(KeepCodesTest, MicroBatchesReadTheCodesThatTheUpdateWrote) {
  RunSpec spec = step_in_8_bits();
  spec.accumulate = 4;
  const Program program = step_program(spec, kGpu);
  EXPECT_EQ(count_of(program, "refresh_codes"), 3);
  EXPECT_EQ(count_of(program, "adamw_codes"), 3);
  spec.shape.batch = 4;
  spec.model.vocab = 32;
  spec.parallel.ranks = 2;  // each with whole weights
  EXPECT_EQ(count_of(step_program(spec, kGpu), "adamw_codes"), 3);
  spec.parallel.shard = 1;
  EXPECT_EQ(count_of(step_program(spec, kGpu), "adamw_codes"), 0);
}

TEST_F(KeepCodesTest, OnlyWholeStepsOfWholeWeightsWithDelayedScalesDo) {
  std::vector<RunSpec> others(7, step_in_8_bits());
  others[0].fp8_scaling = Float8Scaling::kCurrent;
  others[1].executor = ExecutorKind::kEager;
  others[2].updates = UpdateTime::kEarly;
  others[3].offload = Offload::kOptimizer;
  others[4].mode = Mode::kForwardBackward;
  for (std::size_t i : {5, 6}) {
    others[i].shape.batch = 4;
    others[i].model.vocab = 32;
    others[i].parallel.ranks = 2;
  }
  EXPECT_GT(count_of(step_program(others[5], kGpu), "adamw_codes"), 0);
  others[5].parallel.shard = 1;
  others[6].parallel.tensor = 2;
  for (const RunSpec& spec : others) {
    const Program program = step_program(spec, kGpu);
    EXPECT_EQ(count_of(program, "adamw_codes"), 0) << label_of(spec);
  }
}

TEST_F(KeepCodesTest, ThePeakIsThatWhichWasPredicted) {
  for (const RunSpec& spec : all_steps()) {
    const auto device = make_null_device({.traits = kGpu});
    const Program program = program_of(spec, *device, true);
    Store store(*device);
    const auto executor = make_executor(spec.executor, store, program);
    executor->run();
    EXPECT_EQ(executor->predicted_peak_bytes(), device->allocator().stats().peak_requested_bytes);
  }
}

// Codes do not follow weights that the store sets.
TEST_F(KeepCodesTest, WeightsThatWereSetBetweenStepsAreQuantizedAnew) {
  for (const testing::Backend& backend : testing::backends_under_test()) {
    const auto device = backend.make({});
    const auto losses = [&](bool keeps) {
      const Program program =
          testing::executable(program_of(step_in_8_bits(), *device, keeps), *device);
      Store store(*device);
      const auto executor = make_executor(ExecutorKind::kCompiled, store, program);
      std::vector<std::vector<std::byte>> out;
      for (std::uint64_t seed : {1u, 2u}) {
        initialize_parameters(store, seed);
        for (int round : {0, 1}) {
          testing::set_inputs(*executor, round);
          executor->run();
          out.push_back(executor->output("loss").bytes);
        }
      }
      return out;
    };
    EXPECT_EQ(losses(true), losses(false)) << backend.name;
  }
}

// --- the check alone ----------------------------------------------------------------------------
constexpr const char* kChecked = R"(program "checked" {
  parameter %w : f32[160,144]
  input %last : f32[1]
  state %codes.found.1 : f32[1,2] !weight_cast
  state %codes.w : f8e4m3[160,144] !weight_cast
  state %codes.w.transposed : f8e4m3[144,160] !weight_cast
  %0, %1, %2, %3 : f8e4m3[160,144], f8e4m3[144,160], f32[], f32[1] = refresh_codes(%codes.found.1, %w, %last, %codes.w, %codes.w.transposed) {dtype=f8e4m3, largest=448.0, room=2.0, through=bf16}
  output "scale" = %2
  output "largest" = %3
  update %codes.w = %0
  update %codes.w.transposed = %1
})";

using Bytes = std::vector<std::byte>;

// Runs the check on codes of zeros, for which the update reports these magnitudes.
std::vector<Bytes> checked(Device& device, double now, double before, double last) {
  Store store(device);
  const auto executor = make_executor(ExecutorKind::kCompiled, store,
                                      testing::executable(parse_program(kChecked), device));
  store.set("w", testing::random_tensor({DType::kF32, {160, 144}}, "w", -2.0, 2.0));
  executor->set_input("last", testing::from_doubles(DType::kF32, {1}, std::vector{last}));
  const HostTensor found = testing::from_doubles(DType::kF32, {1, 2}, std::vector{now, before});
  device.copy_in(store.at("codes.found.1").data, found.bytes.data(), 8);
  executor->run();
  return {executor->output("scale").bytes, executor->output("largest").bytes,
          store.get("codes.w").bytes, store.get("codes.w.transposed").bytes};
}

TEST_F(KeepCodesTest, CodesAreMadeAnewWhereTheyAreOldOrTheirScaleDoesNotFit) {
  const HostTensor w = testing::random_tensor({DType::kF32, {160, 144}}, "w", -2.0, 2.0);
  const double now = testing::max_abs(testing::to_doubles(as_dtype(w, DType::kBF16)));
  for (const testing::Backend& backend : testing::backends_under_test()) {
    const auto device = backend.make({.guarded = true});
    for (const double last : {0.25, 1.5, 20.0}) {
      const std::vector<Bytes> anew = checked(*device, 0.0, 0.0, last);
      EXPECT_EQ(checked(*device, now, 1.0, last), anew) << "of another magnitude";
      if (last != 1.5) {
        EXPECT_EQ(checked(*device, now, last, last), anew) << "outgrown, or far too large";
      } else if (device->has_kernel(find_op("refresh_codes"))) {
        std::vector<Bytes> kept = anew;
        for (std::size_t i : {2, 3}) std::ranges::fill(kept[i], std::byte{0});
        EXPECT_EQ(checked(*device, now, last, last), kept);
      }
    }
  }
}

}  // namespace
}  // namespace tracestep
