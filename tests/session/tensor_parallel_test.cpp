// Steps of ranks that divide the model: they compute what one rank computes, hold and receive what
// was predicted, and none of them has a whole row of logits.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "analysis/cost.h"
#include "backends/comm/local/local_group.h"
#include "backends/cpu/cpu_device.h"
#include "backends/reference/reference_device.h"
#include "base/error.h"
#include "ops/functions.h"
#include "session/devices.h"
#include "session/session.h"
#include "spec/parse_words.h"
#include "support/family_models.h"
#include "train/step_inputs.h"
#include "weights/model_store.h"
#include "weights/whole_tensors.h"

namespace tracestep {
namespace {

using ::testing::HasSubstr;
using Weights = std::map<std::string, HostTensor>;

// Every size differs from all others, and two and three ranks divide heads, d_ff and vocabulary.
RunSpec small_step(const std::string& device, const std::string& parallel = "none") {
  return {.model = {.vocab = 42, .d_model = 24, .d_ff = 36, .layers = 2, .heads = 6},
          .shape = {.batch = 6, .context = 5},
          .mode = Mode::kStep,
          .parallel = parse_parallel("parallel", parallel),
          .seed = 7,
          .place = {.device = device, .threads = 1}};
}

const char* const kChoices[] = {"tp=2",
                                "tp=3",
                                "tp=2,sp",
                                "tp=3,sp",
                                "tp=2,overlap=off",
                                "dp=3,tp=2",
                                "dp=2,bucket=all,tp=3,sp",
                                "dp=2,shard=1,tp=2",
                                "dp=2,shard=2,tp=3,sp",
                                "dp=2,shard=3,tp=3"};

class TensorParallelTest : public ::testing::Test {
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

WholeTensors tensors_of(Session& session) {
  RunSpec alone = session.spec();
  alone.parallel = {};
  const Program forward = forward_program(alone);
  std::map<std::string, Shape> shapes;
  for (const ValueId id : forward.leaves) {
    const Value& leaf = forward.value(id);
    if (leaf.leaf == LeafKind::kParameter) shapes[leaf.name] = leaf.type.shape;
  }
  std::vector<Store*> stores;
  for (int rank = 0; rank < session.ranks(); ++rank) stores.push_back(&session.store(rank));
  return {std::move(stores), std::move(shapes), session.spec().parallel, session.device().group()};
}

struct Result {
  double loss = 0.0;
  Weights weights;
  double grad_norm = 0.0;  // 0: the step does not compute it
};

void expect_predicted(Session& session, const std::vector<std::int64_t>& received_before) {
  const std::string choice = name_of(session.spec().parallel);
  for (int rank = 0; rank < session.ranks(); ++rank) {
    Device& device = session.device(rank);
    EXPECT_EQ(device.allocator().stats().peak_requested_bytes,
              session.executor().predicted_peak_bytes())
        << choice << ", rank " << rank;
    if (device.group() == nullptr) continue;
    EXPECT_EQ(device.group()->received_bytes() - received_before[static_cast<std::size_t>(rank)],
              received_bytes(session.program(), rank))
        << choice << ", rank " << rank;
  }
}

// Tensors that every rank of a replica holds whole are the same on all of them.
void expect_same_copies(Session& session, const WholeTensors& tensors) {
  for (const std::string& name : tensors.names(LeafKind::kParameter)) {
    if (tensors.is_part(name)) continue;
    for (int rank = 1; rank < session.ranks(); ++rank) {
      EXPECT_EQ(session.store(rank).get(name).bytes, session.store().get(name).bytes)
          << name << " of rank " << rank;
    }
  }
}

// Two steps from the same weights, with the bytes of every rank checked.
Result run(const RunSpec& spec) {
  const auto device = make_device(spec);
  Session session(*device, spec);
  fill_for_timing(session);
  const WholeTensors tensors = tensors_of(session);
  initialize_parameters(tensors, spec.seed);
  for (int i = 0; i < 2; ++i) {
    std::vector<std::int64_t> before;
    for (int rank = 0; rank < session.ranks(); ++rank) {
      session.device(rank).allocator().reset_peak();
      const Communicator* group = session.device(rank).group();
      before.push_back(group == nullptr ? 0 : group->received_bytes());
    }
    session.executor().run();
    expect_predicted(session, before);
  }
  expect_same_copies(session, tensors);
  Result out{session.executor().scalar("loss"), parameters_of(tensors)};
  if (session.program().find_output("grad_norm") != kNoValue) {
    out.grad_norm = session.executor().scalar("grad_norm");
  }
  return out;
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
  EXPECT_NEAR(many.loss, one.loss, tolerance * std::abs(one.loss)) << what;
  ASSERT_EQ(many.weights.size(), one.weights.size()) << what;
  for (const auto& [name, value] : one.weights) {
    EXPECT_LE(difference(value, many.weights.at(name)), tolerance) << what << ", " << name;
  }
}

TEST_F(TensorParallelTest, InFloat64TheyTakeTheStepThatOneRankTakes) {
  const Result one = run(small_step("reference"));
  for (const char* choice : kChoices) {
    expect_same(one, run(small_step("reference", choice)), 1e-12, choice);
  }
}

TEST_F(TensorParallelTest, SoTheyDoWithClippingRecomputationAndBothExecutors) {
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
      expect_same(one, run(spec), 1e-11, fmt::format("{}, {}", choice, name_of(executor)));
    }
  }
}

TEST_F(TensorParallelTest, SoTheyDoWithMuonWhoseMatricesAreGatheredWhole) {
  for (const ExecutorKind executor : {ExecutorKind::kEager, ExecutorKind::kArena}) {
    RunSpec spec = small_step("reference");
    spec.optimizer.kind = OptimizerKind::kMuon;
    spec.optimizer.weight_decay = 0.1;
    spec.executor = executor;
    const Result one = run(spec);
    for (const char* choice : kChoices) {
      spec.parallel = parse_parallel("parallel", choice);
      expect_same(one, run(spec), 1e-10, fmt::format("{}, {}", choice, name_of(executor)));
    }
  }
}

TEST_F(TensorParallelTest, SoTheyDoWithPrimitiveOpsFlashAttentionAndTheSumOfLogits) {
  RunSpec primitive = small_step("reference"), flash = primitive, logits = primitive;
  primitive.ops = Granularity::kPrimitive;
  flash.attention = AttentionForm::kFlash;
  logits.loss = LossKind::kLogitSum;
  for (RunSpec spec : {primitive, flash, logits}) {
    const Result one = run(spec);
    for (const char* choice : {"tp=2", "tp=3,sp"}) {
      spec.parallel = parse_parallel("parallel", choice);
      expect_same(one, run(spec), 1e-11, choice);
    }
  }
}

TEST_F(TensorParallelTest, InFloat32TheyDifferByRoundingAlone) {
  RunSpec spec = small_step("cpu");
  spec.optimizer.kind = OptimizerKind::kSgd;  // AdamW makes a step of the sign of a tiny gradient
  for (const ExecutorKind executor : {ExecutorKind::kEager, ExecutorKind::kArena}) {
    spec.executor = executor;
    spec.parallel = {};
    const Result one = run(spec);
    for (const char* choice : kChoices) {
      spec.parallel = parse_parallel("parallel", choice);
      expect_same(one, run(spec), 1e-6, fmt::format("{}, {}", choice, name_of(executor)));
    }
  }
}

// A step hardly moves loss and weights; the norm shows a gradient that lacks a rank's term.
TEST_F(TensorParallelTest, MixedPrecisionWorksInEveryForm) {
  RunSpec spec = small_step("cpu");
  spec.optimizer.report_norm = true;
  for (const char* precision : {"bf16", "bf16-pure", "bf16 muon"}) {
    const std::string words = precision;
    spec.precision = parse_precision("precision", words.substr(0, words.find(' ')));
    if (words.ends_with("muon")) spec.optimizer.kind = OptimizerKind::kMuon;
    spec.parallel = {};
    const Result one = run(spec);
    for (const char* choice : kChoices) {
      spec.parallel = parse_parallel("parallel", choice);
      const Result many = run(spec);
      EXPECT_NEAR(many.loss, one.loss, 4e-3 * one.loss) << choice << ", " << precision;
      EXPECT_NEAR(many.grad_norm, one.grad_norm, 1e-2 * one.grad_norm)
          << choice << ", " << precision;
    }
  }
}

// Leaves out the biases of keys that are not rotated: their gradient is rounding alone, of whose
// sign AdamW makes a step.
Result with_true_gradients(const RunSpec& spec) {
  Result out = run(spec);
  if (spec.model.positions != Positions::kLearned) return out;
  std::erase_if(out.weights, [](const auto& w) { return w.first.ends_with("k_proj.bias"); });
  return out;
}

// Empty: the choice is taken and computes what one rank computes.
std::string refusal_of(RunSpec spec, const char* choice, const Result& one) {
  spec.parallel = parse_parallel("parallel", choice);
  try {
    const Result many = with_true_gradients(spec);
    expect_same(one, many, 1e-10, spec.model.name + ", " + choice);
    EXPECT_NEAR(many.grad_norm, one.grad_norm, 1e-10 * one.grad_norm) << spec.model.name;
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kUsage);
    return e.what();
  }
  return "";
}

// OLMo 2 normalises all heads of a token together, and GPT-2 adds positions to every rank's rows.
TEST_F(TensorParallelTest, TheyTakeTheStepOfEveryFamilyOrSayWhatTheyCannotDivide) {
  for (const ModelConfig& model : testing::family_models()) {
    RunSpec spec = small_step("reference");
    spec.model = model;
    spec.optimizer.report_norm = true;
    const Result one = with_true_gradients(spec);
    const bool is_olmo = model.qk_norm == QkNorm::kToken;
    const bool is_gpt2 = model.positions == Positions::kLearned;
    const auto expect = [&](const char* choice, bool is_taken) {
      const std::string refusal = refusal_of(spec, choice, one);
      EXPECT_EQ(refusal.empty(), is_taken) << model.name << ", " << choice << ": " << refusal;
    };
    expect("tp=2", !is_olmo);
    expect("dp=3,tp=2", !is_olmo);
    expect("tp=2,sp", !is_olmo && !is_gpt2);
  }
}

TEST_F(TensorParallelTest, NoRankHasAWholeRowOfLogits) {
  const RunSpec spec = small_step("cpu", "dp=2,tp=3");
  const Program program = step_program(spec);
  for (const Value& value : program.values) {
    const Shape& shape = value.type.shape;
    EXPECT_TRUE(shape.empty() || shape.back() != spec.model.vocab) << value.type.str();
  }
}

TEST_F(TensorParallelTest, TheyHoldTheirPartOfTheBytes) {
  const auto peak = [](const char* choice) {
    RunSpec spec = small_step("cpu", choice);
    spec.shape.context = 64;
    const DeviceTraits traits;
    return predicted_peak_bytes(spec.executor, step_program(spec, traits), traits);
  };
  EXPECT_LT(peak("tp=2"), peak("none"));
  EXPECT_LT(peak("tp=3"), peak("tp=2"));
  EXPECT_LT(peak("tp=3,sp"), peak("tp=3")) << "norms and residuals have a part of the rows";
}

TEST_F(TensorParallelTest, LogitsAreWholeWhereTheyAreTheResult) {
  RunSpec spec = small_step("reference");
  spec.mode = Mode::kInference;
  const auto logits = [&](const char* choice) {
    spec.parallel = parse_parallel("parallel", choice);
    const auto device = make_device(spec);
    Session session(*device, spec);
    fill_for_timing(session);
    initialize_parameters(tensors_of(session), spec.seed);
    session.executor().run();
    return session.executor().output("logits");
  };
  const HostTensor one = logits("none");
  for (const char* choice : {"tp=2", "tp=3,sp"}) {
    const HostTensor many = logits(choice);
    EXPECT_EQ(many.shape, one.shape);
    EXPECT_LE(difference(one, many), 1e-12) << choice;
  }
}

TEST_F(TensorParallelTest, CollectivesRunBesideOtherNodesWhereAnyAreLeft) {
  const auto beside = [](const char* choice) {
    RunSpec spec = small_step("cpu", choice);
    spec.executor = ExecutorKind::kCompiled;
    const Program program = step_program(spec);
    return std::ranges::count_if(program.nodes, [](const Node& node) {
      return node.op->find_attr("lane") != nullptr && node.attrs.integer("lane") == 1;
    });
  };
  EXPECT_EQ(beside("tp=2,overlap=off"), 0);
  EXPECT_GE(beside("tp=2"), 4) << "two in backward of each layer";
  EXPECT_EQ(beside("dp=3,tp=2"), 0) << "with groups of two kinds they wait";
}

TEST_F(TensorParallelTest, SizesThatTheyCannotDivideAreNamed) {
  try {
    step_program(small_step("cpu", "tp=4"));
    ADD_FAILURE() << "no error";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kUsage);
    EXPECT_THAT(e.what(), HasSubstr("4 ranks cannot divide the model's heads of 6"));
  }
}

}  // namespace
}  // namespace tracestep
