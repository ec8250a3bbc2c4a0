// Steps of Muon: the formula in float64, the bytes that were predicted, and the same bits however
// the step runs.
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "exec/small_steps.h"
#include "ops/functions.h"
#include "passes/autograd.h"
#include "passes/optimizer.h"
#include "spec/check_run.h"
#include "spec/fields.h"
#include "spec/parse_words.h"
#include "spec/step_program.h"
#include "support/backends.h"
#include "support/host_values.h"
#include "support/run_program.h"
#include "weights/model_store.h"

namespace tracestep {
namespace {

using testing::Tensors;
using testing::to_doubles;

constexpr double kRate = 0.01;  // as set_inputs() has it

// d_ff above and below d_model: matrices are tall and wide.
RunSpec step_of(const char* precision = "fp32") {
  RunSpec spec = testing::small_step(Mode::kStep, Granularity::kFused);
  spec.precision = parse_precision("test", precision);
  spec.optimizer.kind = OptimizerKind::kMuon;
  spec.optimizer.weight_decay = 0.1;
  return spec;
}

// --- the formula --------------------------------------------------------------------------------
struct Matrix {
  std::size_t rows, columns;
  std::vector<double> values;
};

Matrix product(const Matrix& a, const Matrix& b) {
  Matrix out{a.rows, b.columns, std::vector<double>(a.rows * b.columns)};
  for (std::size_t i = 0; i < a.rows; ++i) {
    for (std::size_t k = 0; k < a.columns; ++k) {
      for (std::size_t j = 0; j < b.columns; ++j) {
        out.values[i * b.columns + j] += a.values[i * a.columns + k] * b.values[k * b.columns + j];
      }
    }
  }
  return out;
}

Matrix transposed(const Matrix& x) {
  Matrix out{x.columns, x.rows, std::vector<double>(x.values.size())};
  for (std::size_t i = 0; i < x.rows; ++i) {
    for (std::size_t j = 0; j < x.columns; ++j)
      out.values[j * x.rows + i] = x.values[i * x.columns + j];
  }
  return out;
}

// Jordan et al. 2024, as torch.optim.Muon has it.
Matrix orthogonal(Matrix x) {
  double squares = 0;
  for (const double value : x.values) squares += value * value;
  for (double& value : x.values) value /= std::max(std::sqrt(squares), 1e-7);
  for (int step = 0; step < 5; ++step) {
    const Matrix gram = product(x, transposed(x)), cubic = product(gram, x);
    const Matrix quintic = product(gram, cubic);
    for (std::size_t i = 0; i < x.values.size(); ++i) {
      x.values[i] = 3.4445 * x.values[i] - 4.7750 * cubic.values[i] + 2.0315 * quintic.values[i];
    }
  }
  return x;
}

// One matrix under Muon, by the gradients that others compute.
struct Follower {
  Matrix weight, mean;

  void step(const std::vector<double>& gradient, const OptimizerOptions& o) {
    Matrix ahead = mean;
    for (std::size_t i = 0; i < gradient.size(); ++i) {
      mean.values[i] += (1 - o.momentum) * (gradient[i] - mean.values[i]);
      ahead.values[i] = gradient[i] + o.momentum * (mean.values[i] - gradient[i]);
    }
    const Matrix moves = orthogonal(ahead);
    const double out = static_cast<double>(weight.rows), in = static_cast<double>(weight.columns);
    const double length = o.muon_scale == MuonScale::kOriginal ? std::sqrt(std::max(1.0, out / in))
                                                               : 0.2 * std::sqrt(std::max(out, in));
    for (std::size_t i = 0; i < gradient.size(); ++i) {
      weight.values[i] *= 1 - kRate * o.weight_decay;
      weight.values[i] -= kRate * length * moves.values[i];
    }
  }
};

Matrix matrix_of(const HostTensor& x) {
  return {static_cast<std::size_t>(x.shape[0]), static_cast<std::size_t>(x.shape[1]),
          to_doubles(x)};
}

class MuonTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { ops::register_all(); }
  std::unique_ptr<Device> device(int threads = 2) const {
    return testing::backend_named(GetParam()).make({.threads = threads});
  }
};
INSTANTIATE_TEST_SUITE_P(Backends, MuonTest, ::testing::ValuesIn(testing::backend_names()));

double distance(const std::vector<double>& a, const std::vector<double>& b) {
  double most = 0;
  for (std::size_t i = 0; i < a.size(); ++i) most = std::max(most, std::abs(a[i] - b[i]));
  return most;
}

// The gradients at the weights of `store`.
Tensors gradients_at(const Store& store, const RunSpec& step, Device& device, int round) {
  RunSpec spec = step;
  spec.mode = Mode::kForwardBackward;
  Store own(device);
  const auto executor = make_executor(spec.executor, own, step_program(spec, device));
  for (const auto& [name, value] : parameters_of(store)) own.set(name, value);
  testing::set_inputs(*executor, round);
  executor->run();
  Tensors out;
  for (const auto& [name, value] : parameters_of(store))
    out[name] = executor->output(gradient_name(name));
  return out;
}

// Three steps of the program beside the formula, which takes the program's gradients. A moved
// weight moves the next gradients: what is off then is compared as it is.
TEST_P(MuonTest, MatricesOfLayersMoveByTheFormulaInFloat64) {
  const auto on = device();
  for (const MuonScale scale : kAll<MuonScale>) {
    RunSpec spec = step_of();
    spec.optimizer.muon_scale = scale;
    Store store(*on);
    const auto executor = make_executor(spec.executor, store, step_program(spec, *on));
    initialize_parameters(store, 1);
    initialize_states(store);
    std::map<std::string, Follower> followers;
    const auto states = states_of(store, kMuonStates);
    for (const auto& [name, value] : parameters_of(store)) {
      if (states.contains("muon.m." + name)) {
        Matrix weight = matrix_of(value), mean = weight;
        std::ranges::fill(mean.values, 0.0);
        followers.emplace(name, Follower{std::move(weight), std::move(mean)});
      }
    }
    EXPECT_EQ(followers.size(), 14U);  // q, k, v, output; w1, w2, w3: of two layers
    for (int round = 0; round < 3; ++round) {
      const Tensors gradients = gradients_at(store, spec, *on, round);
      for (auto& [name, follower] : followers)
        follower.step(to_doubles(gradients.at(name)), spec.optimizer);
      testing::set_inputs(*executor, round);
      executor->run();
      for (auto& [name, follower] : followers) {
        const std::vector<double> got = to_doubles(store.get(name));
        EXPECT_LT(distance(got, follower.weight.values), 2e-5 * kRate)
            << name << ", step " << round << ", " << name_of(scale);
        EXPECT_LT(distance(to_doubles(store.get("muon.m." + name)), follower.mean.values), 1e-7);
        follower.weight.values = got;
      }
    }
  }
}

TEST_P(MuonTest, EmbeddingsHeadAndNormsAreUpdatedByAdamw) {
  const auto on = device();
  RunSpec spec = step_of();
  const auto outcome = [&](OptimizerKind kind) {
    spec.optimizer.kind = kind;
    Store store(*on);
    const auto executor = make_executor(spec.executor, store, step_program(spec, *on));
    initialize_parameters(store, 1);
    initialize_states(store);
    testing::set_inputs(*executor, 0);
    executor->run();
    Tensors out;
    for (const auto& [name, value] : parameters_of(store)) out[name] = value;
    for (const std::string& name : store.names(LeafKind::kState)) out[name] = store.get(name);
    return out;
  };
  const Tensors muon = outcome(OptimizerKind::kMuon), adamw = outcome(OptimizerKind::kAdamw);
  for (const char* name : {"token_embeddings.weight", "lm_head.weight", "layers.0.ln1.weight"}) {
    EXPECT_EQ(muon.at(name).bytes, adamw.at(name).bytes) << name;
    EXPECT_TRUE(muon.contains(std::string("adamw.v.") + name));
  }
  EXPECT_FALSE(muon.contains("adamw.m.layers.0.ffn.w1.weight"));
  EXPECT_NE(muon.at("layers.0.ffn.w1.weight").bytes, adamw.at("layers.0.ffn.w1.weight").bytes);
}

// --- bits and bytes -----------------------------------------------------------------------------
struct Outcome {
  Tensors after;
  std::int64_t predicted_peak = 0, measured_peak = 0;
};

Outcome three_steps(const RunSpec& spec, Device& device) {
  Outcome out;
  Store store(device);
  const auto executor = make_executor(spec.executor, store, step_program(spec, device));
  initialize_parameters(store, 1);
  initialize_states(store);
  out.predicted_peak = executor->predicted_peak_bytes();
  for (int round = 0; round < 3; ++round) {
    testing::set_inputs(*executor, round);
    device.allocator().reset_peak();
    executor->run();
    device.synchronize();
    executor->release_outputs();
    out.measured_peak =
        std::max(out.measured_peak, device.allocator().stats().peak_requested_bytes);
  }
  for (LeafKind kind : {LeafKind::kParameter, LeafKind::kState}) {
    for (const std::string& name : store.names(kind)) {
      if (!name.starts_with("shadow.")) out.after[name] = store.get(name);
    }
  }
  return out;
}

TEST_P(MuonTest, StepsHoldWhatWasPredictedInEveryForm) {
  const auto on = device();
  std::vector<RunSpec> steps;
  for (const char* precision : {"fp32", "bf16", "bf16-pure"}) {
    for (const ExecutorKind executor : kAll<ExecutorKind>) {
      for (const Moments moments : {Moments::kF32, Moments::kBF16}) {
        RunSpec spec = step_of(precision);
        spec.executor = executor;
        spec.optimizer.moments = moments;
        steps.push_back(spec);
        spec.updates = UpdateTime::kEarly;
        steps.push_back(spec);
        spec.updates = UpdateTime::kEnd;
        spec.optimizer.clip = 0.5;
        spec.optimizer.guard_finite = true;
        spec.recompute = Recomputation::blocks();
        steps.push_back(spec);
        spec.recompute = {};
        spec.ops = Granularity::kPrimitive;
        steps.push_back(spec);
        spec.ops = Granularity::kFused;
        spec.accumulate = 3;
        steps.push_back(spec);
      }
    }
  }
  for (const RunSpec& spec : steps) {
    const Outcome outcome = three_steps(spec, *on);
    EXPECT_EQ(outcome.measured_peak, outcome.predicted_peak) << label_of(spec);
    const DType moments = spec.optimizer.moments == Moments::kBF16 ? DType::kBF16 : DType::kF32;
    EXPECT_EQ(outcome.after.at("muon.m.layers.0.ffn.w1.weight").dtype, moments) << label_of(spec);
  }
}

TEST_P(MuonTest, EveryExecutorThreadCountAndTimeOfUpdatesGivesTheSameBits) {
  const auto two = device(), three = device(3);
  for (const Moments moments : {Moments::kF32, Moments::kBF16}) {
    for (const char* precision : {"fp32", "bf16"}) {
      RunSpec spec = step_of(precision);
      spec.optimizer.moments = moments;
      const Outcome first = three_steps(spec, *two);
      std::vector<Outcome> others{three_steps(spec, *three)};
      // A library may multiply a batch in another order than one matrix.
      if (GetParam() == "cpu") {
        spec.updates = UpdateTime::kEarly;
        others.push_back(three_steps(spec, *two));
        spec.updates = UpdateTime::kEnd;
      }
      spec.executor = ExecutorKind::kCompiled;
      spec.compile_passes = {"shadow", "join"};
      others.push_back(three_steps(spec, *two));
      for (const Outcome& other : others) {
        for (const auto& [name, value] : first.after) {
          EXPECT_EQ(value.bytes, other.after.at(name).bytes)
              << name << ", " << precision << ", " << name_of(moments);
        }
      }
    }
  }
}

// A step whose gradients are not finite changes nothing, and does not count.
TEST_P(MuonTest, AStepThatIsNotFiniteLeavesEverythingAsItWas) {
  const auto on = device();
  RunSpec spec = step_of();
  spec.optimizer.guard_finite = true;
  spec.optimizer.moments = Moments::kBF16;
  Store store(*on);
  const auto executor = make_executor(spec.executor, store, step_program(spec, *on));
  initialize_parameters(store, 1);
  initialize_states(store);
  const std::string broken = "lm_head.weight";
  HostTensor head = store.get(broken);
  head.as<float>()[3] = INFINITY;
  store.set(broken, head);
  Tensors before;
  for (LeafKind kind : {LeafKind::kParameter, LeafKind::kState}) {
    for (const std::string& name : store.names(kind)) before[name] = store.get(name);
  }
  testing::set_inputs(*executor, 0);
  executor->run();
  for (const auto& [name, value] : before) EXPECT_EQ(store.get(name).bytes, value.bytes) << name;
}

// --- what is Muon's -----------------------------------------------------------------------------
TEST(MuonMatricesTest, AreThoseOfLayersThatProductsReadAndAreTrained) {
  ops::register_all();
  RunSpec spec = step_of();
  EXPECT_EQ(muon_matrices(spec).size(), 14U);
  EXPECT_EQ(muon_matrices(spec).at("layers.1.ffn.w2.weight"), Shape({16, 24}));
  spec.frozen = parse_frozen("test", "layers.0");
  EXPECT_EQ(muon_matrices(spec).size(), 7U);
  spec.frozen = {};
  spec.lora = parse_adapters("test", "r=2,targets=q");
  const auto adapters = muon_matrices(spec);
  EXPECT_EQ(adapters.size(), 4U);
  EXPECT_EQ(adapters.at("layers.0.attn.q_proj.lora_A.weight"), Shape({2, 16}));
  spec.optimizer.kind = OptimizerKind::kAdamw;
  EXPECT_TRUE(muon_matrices(spec).empty());
}

TEST(MuonMatricesTest, WithoutOneMuonIsRefused) {
  ops::register_all();
  RunSpec spec = step_of();
  spec.frozen = parse_frozen("test", "layers");
  const auto refusal = refusal_of(spec);
  ASSERT_TRUE(refusal);
  EXPECT_STREQ(refusal->what(),
               "[optimizer] muon is for the matrices of layers, and no layer of the model has one "
               "to train; give optimizer adamw");
  spec.frozen = {};
  spec.optimizer.moments = Moments::k8Bit;
  EXPECT_EQ(refusal_of(spec)->message(),
            "8bit with optimizer muon: its mean of gradients has no codes");
  spec.optimizer.kind = OptimizerKind::kAdamw;
  EXPECT_FALSE(refusal_of(spec));
}

// Products of updates have the dtype of the model's, and are never in 8 bits. Those of q, k, v and
// output, of w1 and w3, and of w2 are batches of all layers; beside backward each matrix is one.
TEST(MuonProductsTest, AreInBfloat16WhereTheModelsAre) {
  ops::register_all();
  const auto dtypes = [](const char* precision, UpdateTime updates = UpdateTime::kEnd) {
    RunSpec spec = step_of(precision);
    spec.updates = updates;
    spec.fp8_products = Float8Products::kAll;
    spec.shape = {.batch = 2, .context = 8};
    spec.model.d_model = 32, spec.model.d_ff = 48;
    const Program program = step_program(spec, traits_named("cpu", 1));
    std::map<DType, int> out;
    for (const Node& node : program.nodes) {
      const bool is_product = node.op->kernel_class == KernelClass::kGemm;
      if (is_product && node.origin().phase == Phase::kOptimizer)
        ++out[program.type(node.inputs[0]).dtype];
    }
    return out;
  };
  const int all = 3 * 5 * 3;
  for (const char* precision : {"fp32", "fp16"})
    EXPECT_EQ(dtypes(precision), (std::map<DType, int>{{DType::kF32, all}})) << precision;
  for (const char* precision : {"bf16", "bf16-pure", "fp8"})
    EXPECT_EQ(dtypes(precision), (std::map<DType, int>{{DType::kBF16, all}})) << precision;
  EXPECT_EQ(dtypes("bf16", UpdateTime::kEarly), (std::map<DType, int>{{DType::kBF16, 14 * 5 * 3}}));
}

// On a GPU a compiled update is a few kernels besides, and no state, weight or narrow copy is
// copied to its place.
TEST(MuonProductsTest, AreNearlyAllLaunchesOfACompiledUpdate) {
  ops::register_all();
  for (const char* precision : {"bf16", "bf16-pure"}) {
    RunSpec spec = step_of(precision);
    spec.executor = ExecutorKind::kCompiled;
    const Program program = step_program(spec, DeviceTraits{.kind = DeviceKind::kCuda});
    std::map<std::string, int> launched;
    for (const Node& node : program.nodes) {
      if (node.origin().phase == Phase::kOptimizer && launches(program, node))
        ++launched[node.op->name];
    }
    // For a batch, its norms, the products, and the scale at the end. Weights with narrow copies
    // have an AdamW of their own.
    const int adamw = std::string(precision) == "bf16" ? 2 : 1;
    const std::map<std::string, int> others{{"matmul", 3 * 5}, {"matmul_add", 3 * 10},
                                            {"sum", 3},        {"fill", 3},
                                            {"affine", 3},     {"multi_adamw", adamw}};
    EXPECT_LE(launched["fused"], 2 * 14 + 3 * 3 + 1) << precision;
    launched.erase("fused");
    EXPECT_EQ(launched, others) << precision;
  }
}

}  // namespace
}  // namespace tracestep
