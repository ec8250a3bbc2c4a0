// Steps that train adapters, or a part of a model: they compute what the merged model computes,
// hold what was predicted, and ranks take the step that one takes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "backends/comm/local/local_group.h"
#include "backends/cpu/cpu_device.h"
#include "backends/reference/reference_device.h"
#include "base/error.h"
#include "ops/functions.h"
#include "passes/autograd.h"
#include "passes/form_passes.h"
#include "session/devices.h"
#include "session/session.h"
#include "spec/parse_words.h"
#include "support/random_step.h"
#include "train/step_inputs.h"
#include "weights/model_store.h"
#include "weights/nf4_weights.h"
#include "weights/peft_files.h"
#include "weights/whole_tensors.h"

namespace tracestep {
namespace {

using Weights = std::map<std::string, HostTensor>;

class AdaptersTest : public ::testing::Test {
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

RunSpec small_step(const std::string& lora, const std::string& parallel = "none") {
  return {.model = {.vocab = 42, .d_model = 24, .d_ff = 36, .layers = 2, .heads = 6},
          .shape = {.batch = 6, .context = 5},
          .mode = Mode::kStep,
          .lora = parse_adapters("lora", lora),
          .parallel = parse_parallel("parallel", parallel),
          .seed = 7,
          .place = {.device = "reference", .threads = 1}};
}

WholeTensors tensors_of(Session& session) {
  RunSpec alone = session.spec();
  alone.parallel = {};
  std::map<std::string, Shape> shapes;
  const Program forward = forward_program(alone);
  for (const Program& program : {forward, adapt(forward, alone.lora, alone.frozen)}) {
    for (const ValueId id : program.leaves) {
      const Value& leaf = program.value(id);
      if (leaf.leaf != LeafKind::kInput) shapes[leaf.name] = leaf.type.shape;
    }
  }
  std::vector<Store*> stores;
  for (int rank = 0; rank < session.ranks(); ++rank) stores.push_back(&session.store(rank));
  return {std::move(stores), std::move(shapes), session.spec().parallel, session.device().group()};
}

// B is zero at the start, where A has no gradient: other values are set.
void fill(const WholeTensors& tensors, std::uint64_t seed) {
  initialize_parameters(tensors, seed);
  for (const std::string& name : tensors.weights()) {
    if (!name.ends_with(kAdapterB)) continue;
    HostTensor value = tensors.get(name);
    double next = 0.3;
    for (double& x : value.as<double>()) x = next = std::fmod(next * 3.7 + 0.11, 1.0) - 0.5;
    tensors.set(name, value);
  }
}

struct Result {
  double loss = 0.0;
  Weights weights;  // after two steps
};

Result run(const RunSpec& spec) {
  const auto device = make_device(spec);
  Session session(*device, spec);
  fill_for_timing(session);
  if (spec.masks_targets) {
    HostTensor targets = HostTensor::zeros(DType::kI64, {spec.shape.batch, spec.shape.context});
    std::int64_t next = 0;
    for (std::int64_t& target : targets.as<std::int64_t>()) {
      target = ++next % 3 == 0 ? kNoTarget : next * 7 % spec.model.vocab;
    }
    session.executor().set_input("targets", targets);
  }
  const WholeTensors tensors = tensors_of(session);
  fill(tensors, spec.seed);
  const Weights before = parameters_of(tensors);
  for (int i = 0; i < 2; ++i) {
    for (int rank = 0; rank < session.ranks(); ++rank) {
      session.device(rank).allocator().reset_peak();
    }
    session.executor().run();
    for (int rank = 0; rank < session.ranks(); ++rank) {
      EXPECT_EQ(session.device(rank).allocator().stats().peak_requested_bytes,
                session.executor().predicted_peak_bytes())
          << name_of(spec.parallel) << ", rank " << rank;
    }
  }
  Result out{session.executor().scalar("loss"), parameters_of(tensors)};
  for (const auto& [name, value] : before) {
    EXPECT_NE(value.bytes, out.weights.at(name).bytes) << name << " is trained";
  }
  return out;
}

double difference(const HostTensor& a, const HostTensor& b) {
  double most = 0.0, size = 1e-300;
  for (std::size_t i = 0; i < a.as<double>().size(); ++i) {
    most = std::max(most, std::abs(a.as<double>()[i] - b.as<double>()[i]));
    size = std::max(size, std::abs(a.as<double>()[i]));
  }
  return most / size;
}

TEST_F(AdaptersTest, RanksTakeTheStepThatOneTakesAndHoldWhatWasPredicted) {
  const std::string lora = "r=3,alpha=6,targets=all";
  const Result one = run(small_step(lora));
  for (const char* choice : {"dp=2", "dp=3,bucket=all", "dp=2,shard=1", "dp=2,shard=2",
                             "dp=3,shard=3", "tp=2", "tp=3", "dp=2,tp=3", "dp=2,shard=2,tp=2"}) {
    const Result many = run(small_step(lora, choice));
    EXPECT_NEAR(many.loss, one.loss, 1e-12) << choice;
    for (const auto& [name, value] : one.weights) {
      EXPECT_LE(difference(value, many.weights.at(name)), 1e-10) << choice << ", " << name;
    }
  }
}

// Codes are made of whole matrices, which ranks then divide: by columns a rank has a scale for as
// few blocks as lie together.
TEST_F(AdaptersTest, RanksThatDivideWeightsOf4BitsTakeTheStepThatOneTakes) {
  const auto spec_of = [](const char* choice) {
    RunSpec out = small_step("r=3,alpha=6,targets=all,base=nf4", choice);
    out.model.d_model = 192;
    out.model.d_ff = 384;
    return out;
  };
  const Result one = run(spec_of("none"));
  EXPECT_TRUE(one.weights.contains("layers.0.ffn.w2.lora_A.weight"));
  for (const char* choice : {"tp=3", "dp=2,tp=3", "dp=2,shard=2,tp=3", "dp=2,shard=3"}) {
    const Result many = run(spec_of(choice));
    EXPECT_NEAR(many.loss, one.loss, 1e-12) << choice;
    for (const auto& [name, value] : one.weights) {
      EXPECT_LE(difference(value, many.weights.at(name)), 1e-10) << choice << ", " << name;
    }
  }
  EXPECT_THAT([&] { run(spec_of("tp=2")); },
              ::testing::ThrowsMessage<Error>(::testing::HasSubstr("would cut blocks of 64")));
}

TEST_F(AdaptersTest, CodesOfRanksAreThoseOfTheWholeMatrix) {
  const auto tensors_with = [](const char* choice, const auto& act) {
    RunSpec spec = small_step("r=3,targets=all,base=nf4", choice);
    spec.model.d_model = 192;
    spec.model.d_ff = 384;
    const auto device = make_device(spec);
    Session session(*device, spec);
    const WholeTensors tensors = tensors_of(session);
    initialize_parameters(tensors, spec.seed);
    act(tensors);
  };
  Weights whole;
  tensors_with("none", [&](const WholeTensors& tensors) {
    for (const std::string& name : tensors.weights()) whole[name] = tensors.get(name);
  });
  tensors_with("tp=3", [&](const WholeTensors& tensors) {
    int divided = 0;
    for (const std::string& name : tensors.weights()) {
      const HostTensor& wanted = whole.at(name);
      divided += tensors.is_part(name) && !weight_of_part(name).empty() ? 1 : 0;
      const std::string codes = std::string(weight_of_part(name)) + std::string(kNf4Codes);
      const std::int64_t blocks = weight_of_part(name).empty() ? 0 : whole.at(codes).count() / 32;
      const auto back = with_shape(tensors.get(name), wanted.shape, blocks);
      ASSERT_TRUE(back.has_value()) << name;
      EXPECT_EQ(back->bytes, wanted.bytes) << name;
    }
    EXPECT_EQ(divided, 2 * 7 * 3);  // of each product codes, magnitudes and scales
  });
}

// Bounds of documents and the count of targets are those of the whole batch on every rank of a
// replica.
TEST_F(AdaptersTest, RanksTakeTheStepThatOneTakesOfPackedRows) {
  for (const AttentionForm attention : kAll<AttentionForm>) {
    for (const bool is_packed : {true, false}) {
      const auto packed = [&](const char* choice) {
        RunSpec out = small_step("r=3,alpha=6,targets=all,whole=lm_head", choice);
        out.shape.context = 40;
        out.attention = attention;
        out.packed = is_packed;
        out.masks_targets = true;
        return out;
      };
      const Result one = run(packed("none"));
      for (const char* choice : {"dp=2", "dp=2,shard=1", "dp=3,shard=3", "tp=2", "tp=3",
                                 "dp=2,tp=3", "dp=2,shard=2,tp=2"}) {
        const Result many = run(packed(choice));
        EXPECT_NEAR(many.loss, one.loss, 1e-12) << choice;
        for (const auto& [name, value] : one.weights) {
          EXPECT_LE(difference(value, many.weights.at(name)), 1e-10) << choice << ", " << name;
        }
      }
    }
  }
}

// Sums over rows are added up chunk by chunk.
TEST_F(AdaptersTest, FeedForwardsInChunksTakeTheSameStepOnEveryNumberOfRanks) {
  const std::string lora = "r=3,alpha=6,targets=all";
  const Result whole = run(small_step(lora));
  for (const char* choice : {"none", "dp=2", "dp=3,shard=3", "tp=2", "dp=2,shard=2,tp=2"}) {
    for (const char* recompute : {"none", "blocks", "nested"}) {
      RunSpec spec = small_step(lora, choice);
      spec.ffn_chunks = 3;
      spec.recompute = parse_recomputation("recompute", recompute);
      const Result cut = run(spec);
      EXPECT_NEAR(cut.loss, whole.loss, 1e-12) << choice;
      for (const auto& [name, value] : whole.weights) {
        EXPECT_LE(difference(value, cut.weights.at(name)), 1e-10) << choice << ", " << name;
      }
    }
  }
}

HostTensor product(const HostTensor& a, const HostTensor& b, bool turns_a, bool turns_b,
                   double scale) {
  const std::int64_t m = a.shape[turns_a ? 1 : 0], k = a.shape[turns_a ? 0 : 1],
                     n = b.shape[turns_b ? 0 : 1];
  HostTensor out = HostTensor::zeros(DType::kF64, {m, n});
  const auto at = [](const HostTensor& x, std::int64_t i, std::int64_t j) {
    return x.as<double>()[static_cast<std::size_t>(i * x.shape[1] + j)];
  };
  for (std::int64_t i = 0; i < m; ++i) {
    for (std::int64_t j = 0; j < n; ++j) {
      double sum = 0;
      for (std::int64_t t = 0; t < k; ++t) {
        sum += (turns_a ? at(a, t, i) : at(a, i, t)) * (turns_b ? at(b, j, t) : at(b, t, j));
      }
      out.as<double>()[static_cast<std::size_t>(i * n + j)] = scale * sum;
    }
  }
  return out;
}

// With W' = W + s·B·A of the model without adapters: the same loss, dB = s·dW'·Aᵀ, dA = s·Bᵀ·dW'.
TEST_F(AdaptersTest, LossAndGradientsAreThoseOfTheMergedModel) {
  RunSpec with = small_step("r=2,alpha=3,targets=q+v+down+lm_head,rslora");
  with.mode = Mode::kForwardBackward;
  RunSpec without = with;
  without.lora = {};
  const auto device = make_device(with), other = make_device(without);
  Session adapted(*device, with), whole(*other, without);
  fill_for_timing(adapted);
  fill_for_timing(whole);
  const WholeTensors from(adapted.store()), to(whole.store());
  fill(from, with.seed);
  Weights all;
  for (const std::string& name : from.weights()) all[name] = from.get(name);
  for (auto& [name, value] : all) {
    if (is_adapter(name)) continue;
    const std::string path = component_path(name);
    const auto a = all.find(path + std::string(kAdapterA));
    if (a != all.end() && name.ends_with(".weight")) {
      const HostTensor more = product(all.at(path + std::string(kAdapterB)), a->second, false,
                                      false, with.lora.scale());
      for (std::size_t i = 0; i < more.as<double>().size(); ++i) {
        value.as<double>()[i] += more.as<double>()[i];
      }
    }
    to.set(name, value);
  }
  adapted.executor().run();
  whole.executor().run();
  EXPECT_NEAR(adapted.executor().scalar("loss"), whole.executor().scalar("loss"), 1e-12);
  int compared = 0;
  for (const auto& [name, value] : all) {
    if (!name.ends_with(kAdapterA)) continue;
    const std::string path = component_path(component_path(name));
    const std::string name_b = path + std::string(kAdapterB);
    const HostTensor dw = whole.executor().output(gradient_name(path + ".weight"));
    const HostTensor da = adapted.executor().output(gradient_name(name)),
                     db = adapted.executor().output(gradient_name(name_b));
    EXPECT_LE(difference(product(dw, value, false, true, with.lora.scale()), db), 1e-11) << name;
    EXPECT_LE(difference(product(all.at(name_b), dw, true, false, with.lora.scale()), da), 1e-11)
        << name;
    ++compared;
  }
  EXPECT_EQ(compared, 7);  // q, v and down of two layers, and the head
}

// With B of zeros the adapters change nothing: what is left is how frozen weights are stored.
TEST_F(AdaptersTest, UnderAutocastTheLossIsThatOfWeightsRoundedToSixteenBits) {
  for (const char* precision : {"bf16", "fp16"}) {
    RunSpec with = small_step("r=2,targets=all");
    with.place.device = "cpu";
    with.mode = Mode::kForward;
    with.precision = parse_precision("precision", precision);
    RunSpec without = with;
    without.lora = {};
    const auto device = make_device(with), other = make_device(without);
    Session adapted(*device, with), whole(*other, without);
    fill_for_timing(adapted);
    fill_for_timing(whole);
    const WholeTensors from(adapted.store()), to(whole.store());
    for (const std::string& name : to.weights())
      to.set(name, as_dtype(from.get(name), DType::kF32));
    adapted.executor().run();
    whole.executor().run();
    EXPECT_EQ(adapted.executor().scalar("loss"), whole.executor().scalar("loss")) << precision;
    EXPECT_EQ(from.get("token_embeddings.weight").dtype, with.precision.autocast);
  }
}

TEST_F(AdaptersTest, AnyStepHoldsWhatWasPredicted) {
  constexpr std::uint64_t kSteps = 60;
  int made = 0;
  for (std::uint64_t seed = 1; seed <= kSteps; ++seed) {
    testing::Dice dice(seed);
    RunSpec run = testing::random_step(dice, testing::random_small_model(dice));
    run.place.device = "cpu";
    run.place.threads = 1;
    if (!run.lora.is_on() && !run.frozen.any()) {
      run.lora = parse_adapters("lora", dice.pick({"r=1", "r=3,targets=all", "r=2,dropout=0.1"}));
    }
    const auto device = make_device(run);
    std::unique_ptr<Session> session;
    try {
      session = std::make_unique<Session>(*device, run);
    } catch (const Error& error) {  // options that exclude each other
      EXPECT_EQ(error.code(), ErrorCode::kUsage) << error.what();
      continue;
    }
    fill_for_timing(*session);
    device->allocator().reset_peak();
    session->executor().run();
    EXPECT_EQ(device->allocator().stats().peak_requested_bytes,
              session->executor().predicted_peak_bytes())
        << "seed " << seed << ": " << testing::text_of_step(run);
    ++made;
  }
  EXPECT_GT(made, static_cast<int>(kSteps) / 3);
}

}  // namespace
}  // namespace tracestep
