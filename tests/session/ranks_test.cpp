// Steps of several ranks: they compute what one rank computes on the whole batch, hold and receive
// what was predicted, and end together.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <optional>

#include "analysis/cost.h"
#include "backends/comm/local/local_group.h"
#include "backends/cpu/cpu_device.h"
#include "backends/reference/reference_device.h"
#include "base/error.h"
#include "ops/collective_sizes.h"
#include "ops/functions.h"
#include "passes/autograd.h"
#include "session/devices.h"
#include "session/session.h"
#include "spec/parse_words.h"
#include "support/run_program.h"
#include "train/step_inputs.h"
#include "weights/model_store.h"

namespace tracestep {
namespace {

using ::testing::HasSubstr;
using Weights = std::map<std::string, HostTensor>;

RunSpec small_step(const std::string& device, const std::string& parallel = "none") {
  return {.model = {.vocab = 21, .d_model = 16, .d_ff = 20, .layers = 2, .heads = 2},
          .shape = {.batch = 6, .context = 5},
          .mode = Mode::kStep,
          .parallel = parse_parallel("parallel", parallel),
          .seed = 7,
          .place = {.device = device, .threads = 1}};
}

class RanksTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ops::register_all();
    register_group([](Device&, int ranks) { return make_local_group(ranks); });
    register_device(
        "cpu", [](const RunSpec& run) { return make_cpu_device({.threads = run.place.threads}); });
    register_device("reference",
                    [](const RunSpec&) { return make_reference_device({.guarded = true}); });
  }
};

// The part of rank `rank`, padded with zeros.
HostTensor part_of(const HostTensor& whole, int ranks, int rank) {
  const OwnPart own = own_part_of(whole.count(), ranks, rank);
  HostTensor out = HostTensor::zeros(whole.dtype, {part_count(whole.count(), ranks)});
  const std::size_t size = size_of(whole.dtype);
  std::copy_n(whole.bytes.begin() + own.first * static_cast<std::int64_t>(size),
              static_cast<std::size_t>(own.count) * size, out.bytes.begin());
  return out;
}

// The session with the same weights as one without ranks; `program`: instead of the spec's own.
std::unique_ptr<Session> filled(Device& device, const RunSpec& spec,
                                const std::optional<Program>& program = {}) {
  RunSpec alone = spec;
  alone.parallel = {};
  alone.recompute = {};  // a budget is for parts on ranks
  const auto other = make_device(alone);
  Session first(*other, alone);
  fill_for_timing(first);
  auto out = program ? std::make_unique<Session>(device, spec, *program)
                     : std::make_unique<Session>(device, spec);
  fill_for_timing(*out);
  for (const auto& [name, value] : parameters_of(first.store())) {
    for (int rank = 0; rank < out->ranks(); ++rank) {
      Store& store = out->store(rank);
      const bool is_whole = store.at(name).type.shape == value.shape;
      store.set(name, is_whole ? value : part_of(value, out->ranks(), rank));
    }
  }
  return out;
}

// Every parameter as all ranks have it.
Weights weights_of(Session& session, const Weights& shapes) {
  Weights out = shapes;
  for (auto& [name, whole] : out) {
    const bool is_whole = session.store().at(name).type.shape == whole.shape;
    if (is_whole) {
      whole = session.store().get(name);
      for (int rank = 1; rank < session.ranks(); ++rank) {
        EXPECT_EQ(session.store(rank).get(name).bytes, whole.bytes) << name << " of rank " << rank;
      }
      continue;
    }
    std::vector<std::byte> bytes;
    for (int rank = 0; rank < session.ranks(); ++rank) {
      const HostTensor part = session.store(rank).get(name);
      bytes.insert(bytes.end(), part.bytes.begin(), part.bytes.end());
    }
    std::copy_n(bytes.begin(), whole.bytes.size(), whole.bytes.begin());
  }
  return out;
}

struct Result {
  double loss = 0.0;
  Weights weights;
};

// Two steps. Checks the bytes of every rank against the predicted ones.
Result run(const RunSpec& spec, const Weights& shapes = {}) {
  const auto device = make_device(spec);
  const auto session = filled(*device, spec);
  for (int i = 0; i < 2; ++i) {
    std::vector<std::int64_t> before;
    for (int rank = 0; rank < session->ranks(); ++rank) {
      session->device(rank).allocator().reset_peak();
      const Communicator* group = session->device(rank).group();
      before.push_back(group == nullptr ? 0 : group->received_bytes());
    }
    session->executor().run();
    for (int rank = 0; rank < session->ranks(); ++rank) {
      Device& one = session->device(rank);
      EXPECT_EQ(one.allocator().stats().peak_requested_bytes,
                session->executor().predicted_peak_bytes())
          << name_of(spec.parallel) << ", rank " << rank;
      if (one.group() == nullptr) continue;
      EXPECT_EQ(one.group()->received_bytes() - before[static_cast<std::size_t>(rank)],
                received_bytes(session->program(), rank))
          << name_of(spec.parallel) << ", rank " << rank;
    }
  }
  Result out{session->executor().scalar("loss"), {}};
  out.weights = weights_of(*session, shapes.empty() ? parameters_of(session->store()) : shapes);
  return out;
}

std::int64_t peak_of(const RunSpec& spec) {
  const auto device = make_device(spec);
  return Session(*device, spec).executor().predicted_peak_bytes();
}

double difference(const HostTensor& a, const HostTensor& b) {
  const HostTensor wide_a = widened(a), wide_b = widened(b);
  double most = 0.0, size = 0.0;
  for (std::size_t i = 0; i < wide_a.as<double>().size(); ++i) {
    most = std::max(most, std::abs(wide_a.as<double>()[i] - wide_b.as<double>()[i]));
    size = std::max(size, std::abs(wide_a.as<double>()[i]));
  }
  return most / size;
}

void expect_same(const Result& one, const Result& many, double tolerance, const std::string& what) {
  EXPECT_NEAR(many.loss, one.loss, tolerance * one.loss) << what;
  for (const auto& [name, value] : one.weights) {
    EXPECT_LE(difference(value, many.weights.at(name)), tolerance) << what << ", " << name;
  }
}

const char* const kChoices[] = {"dp=2,bucket=tensor",
                                "dp=3,bucket=all",
                                "dp=3,bucket=1KiB",
                                "dp=2",
                                "dp=2,shard=1",
                                "dp=3,shard=1",
                                "dp=2,shard=2",
                                "dp=3,shard=2",
                                "dp=2,shard=3",
                                "dp=3,shard=3",
                                "dp=2,overlap=off",
                                "dp=3,bucket=1KiB,overlap=updates",
                                "dp=2,shard=1,bucket=1KiB",
                                "dp=3,shard=2,bucket=1KiB",
                                "dp=2,shard=3,bucket=1KiB,prefetch=2"};

TEST_F(RanksTest, InFloat64TheyTakeTheStepThatOneRankTakes) {
  const Result one = run(small_step("reference"));
  for (const char* choice : kChoices) {
    expect_same(one, run(small_step("reference", choice), one.weights), 1e-12, choice);
  }
}

TEST_F(RanksTest, SoTheyDoWithClippingRecomputationAndBothExecutors) {
  for (const ExecutorKind executor : {ExecutorKind::kEager, ExecutorKind::kArena}) {
    RunSpec spec = small_step("reference");
    spec.executor = executor;
    spec.optimizer.clip = 0.01;
    spec.optimizer.guard_finite = true;
    spec.optimizer.weight_decay = 0.1;
    spec.recompute = parse_recomputation("recompute", "blocks");
    const Result one = run(spec);
    for (const char* choice : kChoices) {
      spec.parallel = parse_parallel("parallel", choice);
      expect_same(one, run(spec, one.weights), 1e-11,
                  fmt::format("{}, {}", choice, name_of(executor)));
    }
  }
}

// Each rank gathers what a matrix's step is made of, and keeps its part of it.
TEST_F(RanksTest, SoTheyDoWithMuon) {
  for (const Moments moments : {Moments::kF32, Moments::kBF16}) {
    RunSpec spec = small_step("reference");
    spec.optimizer.kind = OptimizerKind::kMuon;
    spec.optimizer.clip = 0.01;
    spec.optimizer.weight_decay = 0.1;
    spec.optimizer.moments = moments;
    spec.executor = moments == Moments::kF32 ? ExecutorKind::kEager : ExecutorKind::kArena;
    const Result one = run(spec);
    for (const char* choice : kChoices) {
      spec.parallel = parse_parallel("parallel", choice);
      expect_same(one, run(spec, one.weights), 1e-10, choice);
    }
  }
}

// Combines all choices of a step with a long context (bench/results/parallel-h200x2.md).
TEST_F(RanksTest, SoTheyDoWithALongContextsChoices) {
  RunSpec spec = small_step("reference");
  spec.model.vocab = 37;
  spec.shape = {.batch = 2, .context = 13};
  spec.executor = ExecutorKind::kArena;
  spec.attention = AttentionForm::kFlash;
  const Result one = run(spec);
  spec.parallel = parse_parallel("parallel", "dp=2,shard=3");
  spec.loss_chunks = 3;
  const std::int64_t most = peak_of(spec);
  spec.recompute = parse_recomputation("recompute", fmt::format("budget={}B", most * 19 / 20));
  expect_same(one, run(spec, one.weights), 1e-11, "dp=2,shard=3 within a budget");
}

TEST_F(RanksTest, InFloat32TheyDifferByRoundingAlone) {
  RunSpec spec = small_step("cpu");
  spec.optimizer.kind = OptimizerKind::kSgd;  // AdamW makes a step of the sign of a tiny gradient
  for (const ExecutorKind executor : {ExecutorKind::kEager, ExecutorKind::kArena}) {
    spec.executor = executor;
    spec.parallel = {};
    const Result one = run(spec);
    for (const char* choice : kChoices) {
      spec.parallel = parse_parallel("parallel", choice);
      expect_same(one, run(spec, one.weights), 1e-6,
                  fmt::format("{}, {}", choice, name_of(executor)));
    }
  }
}

// The reference device is guarded: collectives of lane 1 then run as late as the plan allows.
TEST_F(RanksTest, CollectivesBesideTheOtherNodesChangeNoBit) {
  for (const char* device : {"cpu", "reference"}) {
    const Weights shapes = run(small_step(device)).weights;
    for (const char* form :
         {"bucket=1KiB", "bucket=tensor", "shard=1", "shard=2,bucket=1KiB", "shard=3"}) {
      RunSpec spec = small_step(device, fmt::format("dp=2,{},overlap=off", form));
      spec.executor = ExecutorKind::kArena;
      const Result apart = run(spec, shapes);
      spec.parallel.overlap =
          spec.parallel.shards_optimizer() ? Overlap::kBackward : Overlap::kUpdates;
      const Result beside = run(spec, shapes);
      EXPECT_EQ(beside.loss, apart.loss) << form;
      for (const auto& [name, value] : apart.weights) {
        EXPECT_EQ(beside.weights.at(name).bytes, value.bytes) << form << ", " << name;
      }
    }
  }
}

TEST_F(RanksTest, MixedPrecisionWorksInEveryForm) {
  RunSpec spec = small_step("cpu");
  spec.precision = parse_precision("precision", "bf16");
  const Result one = run(spec);
  for (const char* choice : kChoices) {
    spec.parallel = parse_parallel("parallel", choice);
    EXPECT_NEAR(run(spec, one.weights).loss, one.loss, 2e-3 * one.loss) << choice;
    spec.parallel.low_sums = true;
    EXPECT_NEAR(run(spec, one.weights).loss, one.loss, 2e-3 * one.loss) << choice << ", low sums";
  }
}

RunSpec step_in_8_bits(const std::string& parallel) {
  RunSpec out = small_step("cpu", parallel);
  out.model = {.vocab = 21, .d_model = 16, .d_ff = 48, .layers = 2, .heads = 2};
  out.shape = {.batch = 6, .context = 16};
  out.precision = parse_precision("precision", "fp8");
  out.fp8_products = Float8Products::kAll;
  return out;
}

// Their products take codes of the same scales, whether they hold weights whole or in parts.
TEST_F(RanksTest, StepsInEightBitsHaveTheSameBitsWithWeightsInParts) {
  for (const ExecutorKind executor : {ExecutorKind::kEager, ExecutorKind::kArena}) {
    for (const Float8Scaling scaling : kAll<Float8Scaling>) {
      const auto step = [&](const char* parallel) {
        RunSpec spec = step_in_8_bits(parallel);
        spec.executor = executor;
        spec.fp8_scaling = scaling;
        // Updates as whole tensors are fused in other products.
        spec.compile_passes = {"shadow"};
        return spec;
      };
      const Result one = run(step("none"));
      for (const auto& [whole, parts] :
           {std::pair{"dp=2", "dp=2,shard=3"}, std::pair{"dp=3", "dp=3,shard=3,prefetch=2"}}) {
        const Result expected = run(step(whole), one.weights),
                     found = run(step(parts), one.weights);
        EXPECT_NEAR(expected.loss, one.loss, 2e-2 * one.loss) << whole;
        EXPECT_EQ(found.loss, expected.loss) << parts;
        for (const auto& [name, value] : expected.weights) {
          EXPECT_EQ(found.weights.at(name).bytes, value.bytes) << name << ", " << parts;
        }
      }
    }
  }
}

// As on a GPU; its kernels are decomposed.
TEST_F(RanksTest, UpdatesThatWriteCodesLeaveTheSameWeights) {
  RunSpec spec = step_in_8_bits("dp=2");
  spec.executor = ExecutorKind::kCompiled;
  const auto device = make_device(spec);
  const auto weights = [&](bool keeps) {
    PassContext context{.traits = {.kind = DeviceKind::kCuda}};
    context.has_kernel = [&](const OpDef& op) { return op.only_on_gpus || device->has_kernel(op); };
    if (!keeps) context.disabled.insert("keep_codes");
    const Program program = run_pipeline(forward_program(spec), spec, context).program;
    EXPECT_EQ(program.find_leaf("codes.found.1") != kNoValue, keeps);
    const auto session = filled(*device, spec, testing::executable(program, *device));
    for (int i = 0; i < 3; ++i) session->executor().run();
    return weights_of(*session, parameters_of(session->store()));
  };
  const Weights expected = weights(false);
  for (const auto& [name, value] : weights(true)) {
    EXPECT_EQ(value.bytes, expected.at(name).bytes) << name;
  }
}

TEST_F(RanksTest, StepsInEightBitsWorkInEveryForm) {
  RunSpec spec = step_in_8_bits("none");
  spec.recompute = parse_recomputation("recompute", "blocks");
  const Result one = run(spec);
  for (const char* choice : kChoices) {
    spec.parallel = parse_parallel("parallel", choice);
    EXPECT_NEAR(run(spec, one.weights).loss, one.loss, 2e-2 * one.loss) << choice;
  }
}

// The bytes of weights of the layers that a rank gets.
TEST_F(RanksTest, WeightsOfProductsInEightBitsTakeHalfTheBytes) {
  const auto bytes = [](const char* precision) {
    RunSpec spec = step_in_8_bits("dp=3,shard=3");
    spec.precision = parse_precision("precision", precision);
    const Program program = step_program(spec, DeviceTraits{});
    std::int64_t out = 0;
    for (const Node& node : program.nodes) {
      const Type& type = program.type(node.outputs[0]);
      const bool is_of_layer = node.origin().path.starts_with("layers.");
      if (is_of_layer && type.shape.rank() == 2) out += received_bytes(program, node, 1);
      EXPECT_TRUE(!is_of_layer || node.op->name != "all_gather" || type.shape.rank() < 2 ||
                  is_float8(type.dtype) == (precision == std::string("fp8")))
          << node.origin().path;
    }
    return out;
  };
  EXPECT_GT(bytes("fp8"), 0);
  EXPECT_EQ(2 * bytes("fp8"), bytes("bf16"));
}

// Tokens of a batch, from row `first` on.
HostTensor tokens_from(const RunSpec& spec, std::int64_t first) {
  HostTensor out = HostTensor::zeros(DType::kI64, {spec.shape.batch, spec.shape.context});
  std::int64_t i = first * spec.shape.context;
  for (std::int64_t& token : out.as<std::int64_t>()) token = i++ * 13 % spec.model.vocab;
  return out;
}

TEST_F(RanksTest, GradientsHaveTheBitsOfAsManyAccumulatedBatches) {
  for (const int ranks : {2, 3}) {
    RunSpec spec = small_step("cpu", fmt::format("dp={},bucket=1KiB", ranks));
    spec.mode = Mode::kForwardBackward;
    const auto device = make_device(spec);
    const auto many = filled(*device, spec);
    for (const char* input : {"tokens", "targets"}) {
      many->executor().set_input(input, tokens_from(spec, 0));
    }
    many->executor().run();

    RunSpec alone = spec;
    alone.parallel = {};
    alone.shape.batch /= ranks;
    const auto other = make_device(alone);
    Store store(*other);
    const auto micro = [&](GradientKind kind) {
      alone.gradients = kind;
      return make_executor(alone.executor, store,
                           program_for(loss_program(alone, {.scale = 1.0 / ranks}), alone, *other));
    };
    const auto first = micro(GradientKind::kPersistent), next = micro(GradientKind::kAccumulate);
    for (const auto& [name, value] : parameters_of(many->store())) store.set(name, value);
    for (int rank = 0; rank < ranks; ++rank) {
      Executor& executor = rank == 0 ? *first : *next;
      for (const char* input : {"tokens", "targets"}) {
        executor.set_input(input, tokens_from(alone, rank * alone.shape.batch));
      }
      executor.run();
    }
    for (const auto& [name, value] : states_of(store, kGradientPrefix)) {
      EXPECT_EQ(many->executor().output(name).bytes, value.bytes) << name << ", " << ranks;
    }
  }
}

// The noise does not depend on where an element lies.
TEST_F(RanksTest, StatesRoundedAtRandomAreTheSameBitsInPartsAndWhole) {
  const auto weights_with = [](const char* choice) {
    RunSpec spec = small_step("cpu", choice);
    spec.optimizer.moments = Moments::kBF16;
    return run(spec).weights;
  };
  const Weights whole = weights_with("dp=3");
  for (const char* choice : {"dp=3,shard=1", "dp=3,shard=2"}) {
    for (const auto& [name, weight] : weights_with(choice)) {
      EXPECT_EQ(weight.bytes, whole.at(name).bytes) << name << ", " << choice;
    }
  }
}

TEST_F(RanksTest, ShardsHoldTheirPartOfTheBytes) {
  const auto peak = [](const char* choice) {
    const RunSpec spec = small_step("cpu", choice);
    const DeviceTraits traits;
    return predicted_peak_bytes(spec.executor, step_program(spec, traits), traits);
  };
  // The model is smaller than a bucket of the default size, and has two layers.
  EXPECT_LT(peak("dp=2,shard=1,bucket=tensor,overlap=off"), peak("dp=2,bucket=tensor,overlap=off"))
      << "parts of the optimizer's states";
  EXPECT_LT(peak("dp=2,shard=2,bucket=tensor,overlap=off"),
            peak("dp=2,shard=1,bucket=tensor,overlap=off"))
      << "gradients go as soon as they are summed";
  EXPECT_LT(peak("dp=2,shard=3,bucket=tensor,overlap=off"),
            peak("dp=2,shard=2,bucket=tensor,overlap=off"))
      << "weights are there when they are read";
}

// A weight that is read twice, and one that no gradient flows to. The loss is a sum over the rows.
Program tied_and_frozen(std::int64_t rows) {
  Builder b("tied");
  const Val x = b.input("x", {DType::kF32, {rows, 3}});
  const Val tied = b.parameter("tied.weight", {DType::kF32, {5, 3}});
  const Val frozen = b.parameter("frozen.weight", {DType::kF32, {5}});
  const Val hidden = ops::add(ops::linear(x, tied), ops::stop_gradient(frozen));
  const Val out = ops::matmul(hidden, tied);
  b.output("loss", ops::sum(ops::mul(out, out), {0, 1}));
  return b.finish();
}

HostTensor ramp(const Type& type, std::int64_t first) {
  HostTensor out = HostTensor::zeros(type.dtype, type.shape);
  for (double& value : out.as<double>()) value = 0.1 * static_cast<double>(first++ % 7) - 0.25;
  return out;
}

// The weights after a step of AdamW on a batch of six rows.
Weights tied_step(const std::string& parallel) {
  RunSpec spec = small_step("reference", parallel);
  spec.optimizer.clip = 0.1;
  const auto device = make_device(spec);
  Session session(*device, spec,
                  program_for(tied_and_frozen(6 / spec.parallel.ranks), spec, *device));
  Weights whole{{"tied.weight", ramp({DType::kF64, {5, 3}}, 2)},
                {"frozen.weight", ramp({DType::kF64, {5}}, 3)}};
  for (const auto& [name, value] : whole) {
    for (int rank = 0; rank < session.ranks(); ++rank) {
      session.store(rank).set(
          name, spec.parallel.shards_weights() ? part_of(value, session.ranks(), rank) : value);
    }
  }
  session.executor().set_input("x", ramp({DType::kF64, {6, 3}}, 0));
  session.executor().set_scalar("lr", 0.1);
  session.executor().set_scalar("step_size", 0.1);
  session.executor().run();
  return weights_of(session, whole);
}

TEST_F(RanksTest, TiedAndFrozenWeightsAreUpdatedAsByOneRank) {
  const Weights one = tied_step("none");
  EXPECT_EQ(one.at("frozen.weight").bytes, ramp({DType::kF64, {5}}, 3).bytes);
  EXPECT_GT(difference(one.at("tied.weight"), ramp({DType::kF64, {5, 3}}, 2)), 0.1);
  for (const char* choice : kChoices) {
    const Weights many = tied_step(choice);
    for (const auto& [name, value] : one) {
      EXPECT_LE(difference(value, many.at(name)), 1e-12) << choice << ", " << name;
    }
  }
}

TEST_F(RanksTest, ABatchThatTheyCannotShareIsRefused) {
  try {
    step_program(small_step("cpu", "dp=4"));
    ADD_FAILURE() << "no error";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kUsage);
    EXPECT_THAT(e.what(), HasSubstr("4 ranks cannot have equal shares of a batch of 6"));
  }
}

TEST_F(RanksTest, TheFirstRankThatFailsIsNamedAndTheOthersEndWithIt) {
  const RunSpec spec = small_step("cpu", "dp=3");
  const auto device = make_device(spec);
  const auto session = filled(*device, spec);
  HostTensor tokens = HostTensor::zeros(DType::kI64, {spec.shape.batch, spec.shape.context});
  tokens.as<std::int64_t>()[static_cast<std::size_t>(4 * spec.shape.context)] = 21;  // of rank 2
  session->executor().set_input("tokens", tokens);
  for (int i = 0; i < 2; ++i) {
    try {
      session->executor().run();
      ADD_FAILURE() << "no error";
    } catch (const Error& e) {
      EXPECT_THAT(e.what(), HasSubstr("rank 2: "));
    }
  }
  tokens.as<std::int64_t>()[static_cast<std::size_t>(4 * spec.shape.context)] = 20;
  session->executor().set_input("tokens", tokens);
  EXPECT_NO_THROW(session->executor().run()) << "they can be used again";
}

TEST_F(RanksTest, ARankWithoutMemoryEndsTheStepOfAll) {
  RunSpec spec = small_step("cpu", "dp=2,shard=2");
  const DeviceTraits traits;
  const std::int64_t peak = predicted_peak_bytes(spec.executor, step_program(spec, traits), traits);
  const auto device = make_device(spec);
  register_device("cpu", [peak](const RunSpec& run) {
    return make_cpu_device({.threads = run.place.threads, .memory_limit = peak - 1});
  });
  Session session(*device, spec);
  fill_for_timing(session);
  try {
    session.executor().run();
    ADD_FAILURE() << "no error";
  } catch (const OutOfMemory& e) {
    EXPECT_EQ(e.limit_bytes(), peak - 1);
    EXPECT_THAT(e.what(), HasSubstr("rank 1: cpu"));
  }
}

}  // namespace
}  // namespace tracestep
