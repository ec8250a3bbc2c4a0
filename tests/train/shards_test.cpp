// Checkpoints that several ranks write: what each of them holds, what damages them, and that any
// number of ranks goes on from them to the same bits.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <fstream>
#include <numeric>

#include "backends/comm/local/local_group.h"
#include "backends/cpu/cpu_device.h"
#include "ops/functions.h"
#include "runtime/processes.h"
#include "spec/parse_words.h"
#include "support/allocation_peak.h"
#include "support/temp_folder.h"
#include "tokens/tokenizer.h"
#include "train/run_checkpoints.h"
#include "train/trainer.h"
#include "weights/model_store.h"

namespace tracestep {
namespace {

namespace fs = std::filesystem;
using ::testing::AnyOf;
using ::testing::HasSubstr;

TokenSourcePtr some_tokens() {
  std::vector<std::int32_t> tokens;
  for (int i = 0; i < 900; ++i) tokens.push_back((i * i * 7 + i / 5) % 23);
  return memory_tokens("test tokens", tokens);
}

TrainOptions tiny_options(const char* parallel) {
  TrainOptions out;
  out.run.model = {.vocab = 24, .d_model = 16, .d_ff = 32, .layers = 2, .heads = 2};
  out.run.shape = {.batch = 12, .context = 4};
  out.run.parallel = parse_parallel("", parallel);
  out.run.seed = 3;
  out.steps = 4;
  out.schedule = {ScheduleKind::kConstant, 1e-2, 1e-2, 0, 4};
  return out;
}

// The devices of local ranks.
class Ranks {
 public:
  explicit Ranks(int count) {
    std::vector<std::unique_ptr<Device>> others;
    for (int rank = 1; rank < count; ++rank) others.push_back(make_cpu_device({.threads = 1}));
    all_.emplace(*first_, std::move(others), make_local_group(count));
  }
  const RankDevices& all() const { return *all_; }

 private:
  const std::unique_ptr<Device> first_ = make_cpu_device({.threads = 1});
  std::optional<RankDevices> all_;
};

void run(const TrainOptions& options) {
  const Ranks ranks(options.run.parallel.ranks);
  train(ranks.all(), options, some_tokens(), nullptr, nullptr, [](const TrainStep&) {});
}

std::set<std::string> names_in(const fs::path& folder) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.insert(entry.path().filename());
  return names;
}

void flip_byte(const fs::path& path) {
  std::string content = content_of(path);
  content[content.size() - 3] ^= 1;
  std::ofstream(path, std::ios::binary) << content;
}

class ShardsTest : public ::testing::Test {
 protected:
  void SetUp() override { ops::register_all(); }

  // Two checkpoints of four ranks, of steps 2 and 4.
  TrainOptions two_checkpoints(const char* parallel, const char* lora = "none") const {
    TrainOptions options = tiny_options(parallel);
    options.run.lora = parse_adapters("", lora);
    options.checkpoint = folder_.path() / "run";
    options.checkpoint_every = 2;
    options.save = folder_.path() / "weights.safetensors";
    options.tokenizer = byte_tokenizer();
    run(options);
    return options;
  }
  fs::path newest() const { return folder_.path() / "run/step-00000004"; }

  // Runs on some numbers of ranks, and then on others, end with the weights of one that does not.
  void expect_same_bits(const char* lora) const {
    TrainOptions options = tiny_options("none");
    options.run.lora = parse_adapters("", lora);
    options.shards = 6;
    options.save = folder_.path() / "whole.safetensors";
    run(options);
    const std::string expected = content_of(options.save);
    const std::pair<const char*, const char*> numbers[] = {
        {"dp=3", "dp=6"}, {"dp=6", "dp=2"}, {"dp=2", "none"}, {"none", "dp=3"}};
    for (const auto& [before, after] : numbers) {
      options.checkpoint = folder_.path() / fmt::format("from {} to {} {}", before, after, lora);
      options.save.clear();
      options.resume = false;
      options.steps = 2;
      options.run.parallel = parse_parallel("", before);
      run(options);
      options.resume = true;
      options.steps = 4;
      options.run.parallel = parse_parallel("", after);
      options.save = folder_.path() / "resumed.safetensors";
      run(options);
      EXPECT_EQ(content_of(options.save), expected) << before << " to " << after << lora;
    }
  }

  TempFolder folder_;
};

TEST_F(ShardsTest, EveryElementIsInOneShardAndAllTogetherAreTheWeights) {
  for (const auto& [parallel, lora] : {std::pair{"dp=4", "none"},
                                       {"dp=4,shard=3", "none"},
                                       {"dp=2,tp=2", "none"},
                                       {"dp=2,shard=1,tp=2,sp", "none"},
                                       {"dp=4,shard=3", "targets=all"},
                                       {"dp=2,shard=2,tp=2", "targets=all"}}) {
    two_checkpoints(parallel, lora);
    EXPECT_EQ(
        names_in(newest()),
        (std::set<std::string>{
            "meta.json", "shard-00000-of-00004.safetensors", "shard-00001-of-00004.safetensors",
            "shard-00002-of-00004.safetensors", "shard-00003-of-00004.safetensors", "tokenizer"}));
    std::int64_t in_shards = 0;
    for (int rank = 0; rank < 4; ++rank) {
      const SafetensorsFile shard(newest() / fmt::format("shard-{:05}-of-00004.safetensors", rank));
      for (const std::string& name : shard.names()) in_shards += shard.type(name).count();
    }
    const auto checkpoint = load_checkpoint(folder_.path() / "run");
    ASSERT_TRUE(checkpoint);
    EXPECT_EQ(checkpoint->step, 4);
    std::int64_t in_whole = 0;
    for (const SavedTensors* tensors : {&checkpoint->model, &checkpoint->state}) {
      for (const std::string& name : tensors->names()) in_whole += tensors->type(name).count();
    }
    EXPECT_EQ(in_shards, in_whole) << parallel;
    const SafetensorsFile weights(folder_.path() / "weights.safetensors");
    for (const std::string& name : weights.names()) {
      EXPECT_EQ(checkpoint->model.read(name).bytes, weights.read(name).bytes) << parallel << name;
    }
    fs::remove_all(folder_.path() / "run");
  }
}

TEST_F(ShardsTest, WithFixedShardsOfTheBatchAnyNumberOfRanksGoesOnToTheSameBits) {
  for (const char* lora : {"none", "r=2,targets=all"}) expect_same_bits(lora);
}

TEST_F(ShardsTest, EveryKindOfDamageIsNamedAndTheOneBeforeIsContinued) {
  const std::string name = "shard-00002-of-00004.safetensors";
  const fs::path shard = newest() / name, before = folder_.path() / "run/step-00000002" / name;
  using Damage = std::function<void()>;
  const std::pair<const char*, Damage> kinds[] = {
      {"a byte", [&] { flip_byte(shard); }},
      {"its end", [&] { fs::resize_file(shard, fs::file_size(shard) - 4); }},
      {"all of it", [&] { fs::remove(shard); }},
      {"that of another step",
       [&] { fs::copy(before, shard, fs::copy_options::overwrite_existing); }},
      {"that of another rank",
       [&] {
         fs::copy(newest() / "shard-00001-of-00004.safetensors", shard,
                  fs::copy_options::overwrite_existing);
       }},
      {"the tokenizer", [&] { flip_byte(newest() / "tokenizer"); }}};
  TrainOptions options = two_checkpoints("dp=4,shard=2");
  fs::rename(folder_.path() / "run", folder_.path() / "whole");
  for (const auto& [kind, damage] : kinds) {
    fs::remove_all(folder_.path() / "run");
    fs::copy(folder_.path() / "whole", folder_.path() / "run", fs::copy_options::recursive);
    damage();
    const auto found = load_checkpoint(folder_.path() / "run");
    ASSERT_TRUE(found) << kind;
    EXPECT_EQ(found->step, 2) << kind;
    ASSERT_EQ(found->warnings.size(), 1u) << kind;
    EXPECT_THAT(found->warnings[0], AnyOf(HasSubstr(name), HasSubstr("/tokenizer"))) << kind;
    EXPECT_THAT(found->warnings[0], HasSubstr("step-00000004 is damaged")) << kind;
  }
  flip_byte(before);
  options.resume = true;
  EXPECT_THAT(message_of(ErrorCode::kInput, [&] { run(options); }), HasSubstr(name));
}

TEST_F(ShardsTest, ARankWhoseDiskIsFullIsNamedAndTheEarlierCheckpointStays) {
  TrainOptions options = two_checkpoints("dp=2,shard=2");
  options.resume = true;
  options.steps = 6;
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  // A limit on file size stands in for the full disk.
  const rlimit small{1 << 10, before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  options.save.clear();
  std::string message;
  try {
    run(options);
  } catch (const Error& error) {
    message = error.code() == ErrorCode::kOutput ? error.what() : "another code";
  }
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, old_handler);
  EXPECT_THAT(message, HasSubstr("[rank 0]"));
  EXPECT_THAT(message, HasSubstr("shard-00000-of-00002.safetensors cannot be written"));
  EXPECT_EQ(names_in(folder_.path() / "run"),
            (std::set<std::string>{".lock", "latest", "step-00000002", "step-00000004"}));
  EXPECT_EQ(load_checkpoint(folder_.path() / "run")->step, 4);
}

// The second of two processes; the first one says `first` in every exchange.
class SecondProcess final : public Processes {
 public:
  explicit SecondProcess(std::vector<std::uint64_t> first) : first_(std::move(first)) {}
  int rank() const override { return 1; }
  int count() const override { return 2; }
  int local_rank() const override { return 1; }
  std::vector<std::uint64_t> exchange(std::uint64_t own) override {
    calls.push_back("exchange");
    const std::uint64_t first = first_.front();
    first_.erase(first_.begin());
    return {first, own};
  }
  void broadcast(std::span<std::byte> /*bytes*/) override { calls.push_back("broadcast"); }
  void wait_for_first() override { calls.push_back("wait"); }
  [[noreturn]] void end_all(const std::string& line, int /*status*/) override {
    throw std::runtime_error(line);
  }

  std::vector<std::string> calls;

 private:
  std::vector<std::uint64_t> first_;
};

TEST_F(ShardsTest, EveryProcessBeginsWithTheCheckpointThatTheFirstOneChose) {
  const TrainOptions options = two_checkpoints("dp=2,shard=3");
  const auto sum = [](const Checkpoint& found) { return std::stoull(found.checksum, nullptr, 16); };
  const Checkpoint chosen = load_checkpoint(options.checkpoint, 2);
  SecondProcess second({3, sum(chosen)});  // the step and one
  const InitialWeights weights = open_initial_weights(options.checkpoint, false, &second);
  EXPECT_EQ(weights.hash, chosen.checksum);
  EXPECT_EQ(weights.tensors.read("lm_head.weight").bytes,
            chosen.model.read("lm_head.weight").bytes);
  EXPECT_THAT(second.calls, ::testing::ElementsAre("wait", "exchange", "exchange"));

  TrainOptions resumed = options;
  resumed.resume = true;
  SecondProcess beside({3, sum(chosen)});
  EXPECT_EQ(RunCheckpoints(resumed, &beside).resumed()->step, 2);
  EXPECT_EQ(beside.calls.front(), "wait");
}

TEST_F(ShardsTest, ProcessesThatBeginWithOtherFilesAreRefused) {
  const TrainOptions options = two_checkpoints("dp=2");
  const auto open = [&](std::uint64_t hash_of_first) {
    SecondProcess second({0, 0, hash_of_first});  // no folder, so no checkpoint
    return open_initial_weights(options.save, false, &second).hash;
  };
  EXPECT_THAT(message_of(ErrorCode::kFailed, [&] { open(5); }),
              HasSubstr("the file of weights differs"));
  const std::string hash = open_initial_weights(options.save, true, nullptr).hash;
  EXPECT_EQ(open(std::stoull(hash, nullptr, 16)), hash);
}

TEST_F(ShardsTest, AnEmptyTensorTakesNoTimeWhateverItsOtherSizes) {
  const DividedTensor tensor{{DType::kF32, {std::int64_t{1} << 62, 0}}, 1};
  HostTensor whole{DType::kF32, tensor.whole.shape, {}};
  put_block(whole, {}, tensor, parse_parallel("", "tp=2"), 0);
  EXPECT_TRUE(whole.bytes.empty());
}

TEST_F(ShardsTest, NoRankHoldsTheModelForACheckpoint) {
  TrainOptions options = tiny_options("dp=4,shard=3");
  options.run.model = {.vocab = 8192, .d_model = 64, .d_ff = 64, .layers = 1, .heads = 2};
  options.checkpoint = folder_.path() / "run";
  const Ranks ranks(4);
  Trainer trainer(ranks.all(), options, some_tokens(), nullptr);
  const WholeTensors tensors = trainer.tensors();
  initialize_parameters(tensors, 1);
  const auto embedding = static_cast<std::size_t>(tensors.type("token_embeddings.weight").bytes());
  ASSERT_EQ(embedding, std::size_t{2} << 20);  // of six such tensors, with lm_head and the moments
  RunCheckpoints checkpoints(options, nullptr);
  const std::size_t saving =
      testing::allocation_peak_of([&] { EXPECT_FALSE(checkpoints.save(1, tensors)); });
  EXPECT_LT(saving, embedding) << "a whole tensor; files are hashed by parts of 1 MiB";
  const SavedTensors saved = load_checkpoint(options.checkpoint)->model;
  const std::size_t loading = testing::allocation_peak_of([&] { load_parameters(tensors, saved); });
  EXPECT_LT(loading, 3 * embedding) << "a whole tensor, and the piece that a rank takes of it";
}

}  // namespace
}  // namespace tracestep
