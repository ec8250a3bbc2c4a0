// Training on several ranks: the weights of one rank that accumulates, and checkpoints of any
// number of ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "backends/comm/local/local_group.h"
#include "backends/cpu/cpu_device.h"
#include "backends/reference/reference_device.h"
#include "base/error.h"
#include "ops/functions.h"
#include "spec/parse_words.h"
#include "support/temp_folder.h"
#include "train/loop.h"
#include "weights/safetensors.h"

namespace tracestep {
namespace {

TokenSourcePtr some_tokens() {
  std::vector<std::int32_t> tokens;
  for (int i = 0; i < 900; ++i) tokens.push_back((i * i * 7 + i / 5) % 23);
  return memory_tokens("test tokens", tokens);
}

TrainOptions tiny_options(int ranks) {
  TrainOptions out;
  out.run.model = {.vocab = 24, .d_model = 16, .d_ff = 32, .layers = 2, .heads = 2};
  out.run.shape = {.batch = 4, .context = 8};
  out.run.parallel.ranks = ranks;
  out.run.seed = 3;
  out.run.optimizer.weight_decay = 0.1;
  out.run.optimizer.clip = 0.5;
  out.steps = 4;
  out.schedule = {ScheduleKind::kConstant, 1e-2, 1e-2, 0, 4};
  return out;
}

using MakeDevice = std::function<std::unique_ptr<Device>()>;

std::unique_ptr<Device> cpu() {
  return make_cpu_device({.threads = 1});
}
std::unique_ptr<Device> reference() {
  return make_reference_device();
}

std::vector<TrainStep> run(const TrainOptions& options, const MakeDevice& make = cpu) {
  const int ranks = options.run.parallel.ranks;
  const auto first = make();
  std::vector<std::unique_ptr<Device>> others;
  for (int rank = 1; rank < ranks; ++rank) others.push_back(make());
  const RankDevices devices(*first, std::move(others), make_local_group(ranks));
  std::vector<TrainStep> out;
  train(devices, options, some_tokens(), some_tokens(), nullptr,
        [&](const TrainStep& step) { out.push_back(step); });
  return out;
}

std::string bytes_of(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

class RanksTest : public ::testing::Test {
 protected:
  void SetUp() override { ops::register_all(); }
  TempFolder folder_;
};

TEST_F(RanksTest, TheirWeightsHaveTheBitsOfAsManyAccumulatedBatches) {
  std::vector<std::pair<Moments, const char*>> kinds{{Moments::kF32, "fp8"}};
  for (const Moments moments : kAll<Moments>) kinds.emplace_back(moments, "fp32");
  for (const auto& [moments, precision] : kinds) {
    const bool is_fp8 = precision == std::string("fp8");
    const int ranks = moments == Moments::kF32 && !is_fp8 ? 4 : 2;
    TrainOptions many = tiny_options(ranks);
    many.run.optimizer.moments = moments;
    many.run.precision = parse_precision("test", precision);
    many.run.fp8_products = Float8Products::kAll;
    many.save = folder_.path() / "many.safetensors";
    TrainOptions one = many;
    one.run.parallel.ranks = 1;
    one.run.shape.batch /= ranks;
    one.run.accumulate = ranks;
    one.save = folder_.path() / "one.safetensors";
    const std::vector<TrainStep> steps = run(many), expected = run(one);
    for (std::size_t i = 0; i < steps.size(); ++i) {
      EXPECT_NEAR(steps[i].loss, expected[i].loss, 1e-6);
      EXPECT_EQ(steps[i].grad_norm, expected[i].grad_norm) << ranks << " ranks, step " << i;
    }
    EXPECT_EQ(bytes_of(many.save), bytes_of(one.save))
        << ranks << " ranks, " << name_of(moments) << " " << precision;
  }
}

// The noise does not depend on where an element lies.
TEST_F(RanksTest, WeightsRoundedAtRandomHaveTheSameBitsInPartsAndWhole) {
  const auto weights_with = [&](const char* choice) {
    TrainOptions options = tiny_options(1);
    options.run.precision = parse_precision("test", "bf16-pure");
    options.run.parallel = parse_parallel("", choice);
    options.run.optimizer.clip = 0;  // whose norm is added up part by part
    options.rounding = Rounding::kRandom;
    options.schedule.lr = 1e-4;
    options.save = folder_.path() / "w.safetensors";
    run(options);
    return bytes_of(options.save);
  };
  const std::string whole = weights_with("dp=2");
  for (const char* choice : {"dp=2,shard=1", "dp=2,shard=2", "dp=2,shard=3"}) {
    EXPECT_TRUE(weights_with(choice) == whole) << choice;
  }
}

// A matrix is decayed also where a rank holds a vector of it.
TEST_F(RanksTest, DecayOfMatricesAloneLeavesTheOtherWeightsAsTheyWere) {
  const auto weights = [&](const TrainOptions& options) {
    TrainOptions saved = options;
    saved.save = folder_.path() / "w.safetensors";
    run(saved);
    const SafetensorsFile file(saved.save);
    std::map<std::string, HostTensor> out;
    for (const std::string& name : file.names()) out.emplace(name, file.read(name));
    return out;
  };
  for (const char* choice : {"none", "dp=2", "dp=2,shard=1", "dp=2,shard=3", "dp=2,tp=2"}) {
    for (const ExecutorKind executor : {ExecutorKind::kEager, ExecutorKind::kCompiled}) {
      for (const std::int64_t accumulate : {1, 2}) {
        TrainOptions options = tiny_options(1);
        options.run.parallel = parse_parallel("test", choice);
        options.run.executor = executor;
        options.run.accumulate = accumulate;
        options.steps = 1;
        options.run.optimizer.decay_on = DecayOn::kMatrices;
        const auto decayed = weights(options);
        options.run.optimizer.weight_decay = 0.0;
        for (const auto& [name, value] : weights(options)) {
          EXPECT_EQ(value.bytes == decayed.at(name).bytes, value.shape.rank() < 2)
              << name << ", " << choice << ", " << name_of(executor) << ", " << accumulate;
        }
      }
    }
  }
}

TEST_F(RanksTest, ShardsAreAddedUpInOneOrderWhateverTheNumberOfRanks) {
  TrainOptions options = tiny_options(1);
  options.run.shape.batch = 1;
  options.run.accumulate = 6;
  options.save = folder_.path() / "accumulated.safetensors";
  run(options);
  const std::string expected = bytes_of(options.save);
  options.run.shape.batch = 6;
  options.run.accumulate = 1;
  options.shards = 6;
  options.save = folder_.path() / "shards.safetensors";
  for (const int ranks : {1, 2, 3, 6}) {
    options.run.parallel.ranks = ranks;
    run(options);
    EXPECT_EQ(bytes_of(options.save), expected) << ranks << " ranks";
  }
}

// A product that takes in what is added to it would round once where one rank rounds twice. Scales
// of 8 bits come from a checkpoint of another number of ranks.
TEST_F(RanksTest, ShardsKeepTheirOrderInCompiledStepsOfLowPrecision) {
  for (const char* precision : {"bf16", "fp8"}) {
    TrainOptions options = tiny_options(1);
    options.run.shape = {.batch = 4, .context = 16};
    options.shards = 4;
    options.run.executor = ExecutorKind::kCompiled;
    options.run.precision = parse_precision("test", precision);
    options.run.fp8_products = Float8Products::kAll;
    options.save = folder_.path() / "shards.safetensors";
    run(options);
    const std::string expected = bytes_of(options.save);
    options.checkpoint = folder_.path() / precision;
    options.run.parallel.ranks = 2;
    options.steps = 2;
    run(options);
    options.steps = 4;
    options.resume = true;
    options.run.parallel.ranks = 4;
    run(options);
    EXPECT_EQ(bytes_of(options.save), expected) << precision;
  }
}

TEST_F(RanksTest, ShardsThatTheyCannotShareAreRefused) {
  TrainOptions options = tiny_options(2);
  options.shards = 3;
  EXPECT_THROW(run(options), Error) << "two ranks do not divide three shards";
  options.shards = 8;
  EXPECT_THROW(run(options), Error) << "eight shards do not divide a batch of four";
  options.shards = 4;
  options.run.parallel.shard = 2;
  EXPECT_THROW(run(options), Error) << "parts of gradients";
  options.run.parallel.shard = 0;
  options.run.parallel.low_sums = true;
  EXPECT_THROW(run(options), Error) << "sums that are rounded once for each rank";
  options.run.parallel.low_sums = false;
  options.run.loss_chunks = 2;
  EXPECT_THROW(run(options), Error) << "a loss in chunks";
  options.run.loss_chunks = 1;
  run(options);
}

TEST_F(RanksTest, TheySumWhatTheyHaveAccumulated) {
  TrainOptions many = tiny_options(2), one = tiny_options(1);
  many.run.accumulate = one.run.accumulate = 3;
  many.validate_every = one.validate_every = 2;
  const std::vector<TrainStep> steps = run(many, reference), expected = run(one, reference);
  for (std::size_t i = 0; i < steps.size(); ++i) {
    EXPECT_NEAR(steps[i].loss, expected[i].loss, 1e-11);
    EXPECT_NEAR(steps[i].grad_norm, expected[i].grad_norm, 1e-11);
    EXPECT_NEAR(steps[i].validation_loss.value_or(0), expected[i].validation_loss.value_or(0),
                1e-11);
  }
}

TEST_F(RanksTest, AnyNumberOfThemContinuesACheckpoint) {
  TrainOptions options = tiny_options(1);
  const std::vector<TrainStep> expected = run(options, reference);
  options.checkpoint = folder_.path() / "run";
  options.steps = 2;
  options.run.parallel.ranks = 2;
  run(options, reference);
  options.resume = true;
  options.steps = 4;
  options.run.parallel.ranks = 4;
  const std::vector<TrainStep> rest = run(options, reference);
  ASSERT_EQ(rest.size(), 2u);
  for (std::size_t i = 0; i < 2; ++i) EXPECT_NEAR(rest[i].loss, expected[i + 2].loss, 1e-11);
}

void expect_near(const std::vector<TrainStep>& steps, const std::vector<TrainStep>& expected,
                 const std::string& what) {
  ASSERT_EQ(steps.size(), expected.size()) << what;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    EXPECT_NEAR(steps[i].loss, expected[i].loss, 1e-11) << what;
    EXPECT_NEAR(steps[i].grad_norm, expected[i].grad_norm, 1e-11) << what;
    EXPECT_NEAR(steps[i].validation_loss.value_or(0), expected[i].validation_loss.value_or(0),
                1e-11)
        << what;
  }
}

TEST_F(RanksTest, PartsOfWeightsAndStatesAreTrainedAsWholeOnes) {
  for (const int accumulate : {1, 2}) {
    TrainOptions one = tiny_options(1);
    one.run.accumulate = accumulate;
    one.validate_every = 2;
    const std::vector<TrainStep> expected = run(one, reference);
    for (const char* choice : {"dp=4,shard=1", "dp=4,shard=2", "dp=4,shard=3", "tp=2", "tp=2,sp",
                               "dp=2,tp=2", "dp=2,shard=1,tp=2,sp", "dp=2,shard=3,tp=2"}) {
      TrainOptions many = one;
      many.run.parallel = parse_parallel("", choice);
      expect_near(run(many, reference), expected,
                  fmt::format("{}, accumulate {}", choice, accumulate));
    }
  }
}

TEST_F(RanksTest, ACheckpointOfPartsIsContinuedByAnyRanksAndAnySharding) {
  TrainOptions options = tiny_options(1);
  const std::vector<TrainStep> all = run(options, reference);
  const std::vector<TrainStep> expected(all.begin() + 2, all.end());
  const std::pair<const char*, const char*> forms[] = {{"dp=4,shard=3", "dp=2,shard=1"},
                                                       {"dp=2,shard=1", "dp=2,shard=3,tp=2"},
                                                       {"dp=2,shard=2,tp=2", "none"},
                                                       {"tp=2", "dp=4,shard=3"}};
  for (const auto& [before, after] : forms) {
    options.checkpoint = folder_.path() / fmt::format("from {} to {}", before, after);
    options.resume = false;
    options.steps = 2;
    options.run.parallel = parse_parallel("", before);
    run(options, reference);
    options.resume = true;
    options.steps = 4;
    options.run.parallel = parse_parallel("", after);
    expect_near(run(options, reference), expected, fmt::format("{} to {}", before, after));
  }
}

TEST_F(RanksTest, TheirWeightsStartWithTheBitsOfOneRank) {
  TrainOptions options = tiny_options(1);
  options.steps = 0;
  options.save = folder_.path() / "one.safetensors";
  run(options);
  const std::string expected = bytes_of(options.save);
  for (const char* choice : {"dp=4,shard=3", "tp=2", "dp=2,shard=3,tp=2"}) {
    options.run.parallel = parse_parallel("", choice);
    options.save = folder_.path() / "parts.safetensors";
    run(options);
    EXPECT_EQ(bytes_of(options.save), expected) << choice;
  }
}

}  // namespace
}  // namespace tracestep
