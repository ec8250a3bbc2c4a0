// train, eval and generate, as a person calls them.
#include <chrono>
#include <csignal>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json.h"
#include "cli/run_binary.h"
#include "support/temp_folder.h"
#include "weights/safetensors.h"

namespace tracestep {
namespace {

const std::string kSizes = " --d-model 32 --d-ff 64 --layers 1 --heads 2 --batch 2 --context 16";

std::string some_text() {
  std::string out;
  for (int i = 0; i < 200; ++i) out += "the quick brown fox jumps over the lazy dog. ";
  return out;
}

class TrainTest : public testing::Test {
 protected:
  TrainTest() { folder_.write("text.txt", some_text()); }

  ProgramRun run(const std::string& arguments, RunHow how = {}) const {
    how.folder = folder_.path();
    return run_tracestep(words_of(arguments), how);
  }
  std::string file(const char* name) const { return content_of(folder_ / name); }

  TempFolder folder_;
};

TEST_F(TrainTest, TrainingWritesALogWeightsAndATokenizer) {
  const ProgramRun done =
      run("train --text text.txt --steps 30 --lr 0.01 --log log.jsonl "
          "--save w.safetensors --format json" +
          kSizes);
  ASSERT_EQ(done.status, 0) << done.err;
  const Json row = Json::parse(done.out, "train").at("rows").items()[0];
  EXPECT_EQ(row.at("status").as_string(), "done");
  EXPECT_EQ(row.at("steps").as_int(), 30);
  EXPECT_LT(row.at("loss").as_double(), row.at("first_loss").as_double() - 0.5);
  const std::string log = file("log.jsonl");
  EXPECT_EQ(std::ranges::count(log, '\n'), 30);
  const Json line = Json::parse(log.substr(0, log.find('\n')), "log");
  for (const char* key : {"step", "loss", "grad_norm", "lr", "tokens_per_s"}) {
    EXPECT_NE(line.find(key), nullptr) << key;
  }

  // The model's sizes and the tokenizer are found with the weights.
  const ProgramRun text =
      run("generate --init w.safetensors --prompt 'the ' --max-tokens 12 "
          "--temperature 0");
  ASSERT_EQ(text.status, 0) << text.err;
  EXPECT_TRUE(text.out.starts_with("the "));
  EXPECT_EQ(text.out.back(), '\n');
  const ProgramRun loss =
      run("eval --init w.safetensors --text text.txt --batch 2 --context 16 "
          "--batches 3 --logits l.safetensors --gradients g.safetensors "
          "--format json");
  ASSERT_EQ(loss.status, 0) << loss.err;
  const Json result = Json::parse(loss.out, "eval").at("rows").items()[0];
  EXPECT_NEAR(result.at("perplexity").as_double(), std::exp(result.at("loss").as_double()), 1e-6);
  EXPECT_EQ(SafetensorsFile(folder_ / "l.safetensors").read("logits").shape, (Shape{2, 16, 256}));
  EXPECT_NE(SafetensorsFile(folder_ / "g.safetensors").find("lm_head.weight"), nullptr);
}

// States have the dtype that was asked for, and a run goes on with it alone.
TEST_F(TrainTest, ALogIsOneRunsAtATime) {
  ProgramRun second;
  RunHow how;
  how.while_running = [&](pid_t first) {
    while (file("log").empty()) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    second = run("train --text text.txt --steps 1 --log log" + kSizes);
    ::kill(first, SIGTERM);
  };
  const ProgramRun first = run("train --text text.txt --steps 1000000 --log log" + kSizes, how);
  EXPECT_EQ(second.status, 5) << second.err;
  EXPECT_TRUE(contains(second.err, "log is the log of another run")) << second.err;
  EXPECT_EQ(first.status, 128 + SIGTERM) << first.err;
  EXPECT_TRUE(file("log").starts_with("{\"step\":1,"));
}

TEST_F(TrainTest, HeadsThatAreNoNumberAreRefused) {
  ASSERT_EQ(run("train --text text.txt --steps 1 --save w.safetensors" + kSizes).status, 0);
  std::string weights = file("w.safetensors");
  const std::string heads = "\"heads\":\"2\"";
  const std::size_t at = weights.find(heads);
  ASSERT_NE(at, std::string::npos);
  for (const char* text : {"x", "0", "+", " "}) {
    weights.replace(at + heads.size() - 2, 1, text);
    folder_.write("w.safetensors", weights);
    const ProgramRun eval =
        run("eval --init w.safetensors --text text.txt --context 16 --batch 2 --batches 1");
    EXPECT_EQ(eval.status, 3) << text << eval.err;
    EXPECT_TRUE(contains(eval.err, "heads is \"")) << eval.err;
  }
}

// The first program overwrites gradients, the second adds: the budget is for the larger peak.
TEST_F(TrainTest, TheLeastBudgetThatIsNamedIsMet) {
  const std::string train =
      "train --text text.txt --steps 1 --accumulate 2 --executor arena --threads 1 "
      "--d-model 32 --d-ff 48 --layers 3 --heads 2 --context 16 --batch 4 --recompute budget=";
  const ProgramRun refused = run(train + "1B");
  EXPECT_EQ(refused.status, 2);
  const std::size_t bytes = refused.err.rfind('(') + 1;
  const std::string least = refused.err.substr(bytes, refused.err.find(' ', bytes) - bytes);
  const ProgramRun met = run(train + least + "B");
  EXPECT_EQ(met.status, 0) << met.err;
}

TEST_F(TrainTest, NothingIsWrittenBeforeTheWeightsAreRead) {
  ASSERT_EQ(run("train --text text.txt --steps 1 --save w.safetensors" + kSizes).status, 0);
  std::string weights = file("w.safetensors");
  const std::string dtype = "\"dtype\":\"F32\"";
  for (std::size_t at; (at = weights.find(dtype)) != std::string::npos;) {
    weights[at + dtype.size() - 4] = 'I';
  }
  folder_.write("w.safetensors", weights);
  const ProgramRun sampled =
      run("generate --init w.safetensors --tokenizer bytes --prompt abc --max-tokens 2");
  EXPECT_EQ(sampled.status, 3) << sampled.err;
  EXPECT_EQ(sampled.out, "");
}

TEST_F(TrainTest, MomentsAreKeptInTheirDtypeAndResumed) {
  const std::string train =
      "train --text text.txt --steps 2 --moments bf16 --checkpoint states" + kSizes;
  ASSERT_EQ(run(train).status, 0);
  const SafetensorsFile states(folder_.path() / "states/step-00000002/state.safetensors");
  EXPECT_EQ(states.read("adamw.m.lm_head.weight").dtype, DType::kBF16);
  EXPECT_NE(states.find("adamw.steps"), nullptr);
  EXPECT_EQ(run(train + " --resume").status, 0);
  const ProgramRun other =
      run("train --text text.txt --steps 2 --moments fp32 --checkpoint states --resume" + kSizes);
  EXPECT_EQ(other.status, 2);
  EXPECT_THAT(other.err, testing::HasSubstr("moments"));
  EXPECT_THAT(other.err, testing::Not(testing::HasSubstr("--change")));
}

TEST_F(TrainTest, MuonIsResumedAndStaysMuon) {
  const std::string train =
      "train --text text.txt --optimizer muon --momentum 0.9 --muon-scale original" + kSizes;
  ASSERT_EQ(run(train + " --steps 6 --save whole.safetensors").status, 0);
  ASSERT_EQ(run(train + " --steps 3 --checkpoint muon").status, 0);
  const SafetensorsFile states(folder_.path() / "muon/step-00000003/state.safetensors");
  EXPECT_EQ(states.read("muon.m.layers.0.ffn.w1.weight").dtype, DType::kF32);
  EXPECT_EQ(states.find("adamw.m.layers.0.ffn.w1.weight"), nullptr);
  EXPECT_NE(states.find("adamw.m.lm_head.weight"), nullptr);
  const std::string resume = "train --checkpoint muon --resume --steps 6";
  ASSERT_EQ(run(resume + " --save parts.safetensors").status, 0);
  EXPECT_EQ(file("whole.safetensors"), file("parts.safetensors"));
  const ProgramRun other = run(resume + " --optimizer adamw");
  EXPECT_EQ(other.status, 2);
  EXPECT_THAT(other.err, testing::HasSubstr("other optimizer: muon, now adamw;"));
  EXPECT_EQ(run("train --text text.txt --steps 1 --momentum 0.9" + kSizes).err,
            "tracestep: [--momentum] AdamW updates all weights, and it is for the steps of Muon; "
            "leave it out, or give --optimizer muon\n");
}

TEST_F(TrainTest, WhereACosineEndsIsRefusedWithoutOne) {
  const std::string train = "train --text text.txt --steps 1 --lr-min 0.0001" + kSizes;
  EXPECT_EQ(
      run(train).err,
      "tracestep: [--lr-min] a constant rate stays as it is; leave it out, or give --schedule "
      "cosine\n");
  EXPECT_EQ(run(train + " --schedule cosine").status, 0);
  EXPECT_EQ(run(train + " --recipe gpt").status, 0);
  const std::string constant = "train --text text.txt --steps 1 --recipe gpt --schedule constant";
  EXPECT_THAT(run(constant + kSizes).err, testing::Not(testing::HasSubstr("--lr-min")));
}

TEST_F(TrainTest, MomentsInEightBitsAreResumedAndKeptWhole) {
  const std::string train = "train --text text.txt --moments 8bit --lr 0.01" + kSizes;
  ASSERT_EQ(run(train + " --steps 6 --save whole.safetensors").status, 0);
  const std::string parts = train + " --checkpoint codes --resume --save parts.safetensors";
  ASSERT_EQ(run(parts + " --steps 3").status, 0);
  const SafetensorsFile states(folder_.path() / "codes/step-00000003/state.safetensors");
  const HostTensor codes = states.read("adamw.v.lm_head.weight");
  EXPECT_EQ(codes.dtype, DType::kU8);
  EXPECT_EQ(states.read("adamw.v.lm_head.weight.scale").count(), (codes.count() + 127) / 128);
  ASSERT_EQ(run(parts + " --steps 6").status, 0);
  EXPECT_EQ(file("whole.safetensors"), file("parts.safetensors"));
  const ProgramRun sharded = run(train + " --steps 1 --parallel dp=2,shard=1");
  EXPECT_EQ(sharded.status, 2);
  EXPECT_THAT(sharded.err, testing::HasSubstr("blocks of codes are of whole tensors"));
}

TEST_F(TrainTest, AResumedRunEndsWithTheSameWeights) {
  const std::string common = " --text text.txt --lr 0.01" + kSizes;
  ASSERT_EQ(run("train --steps 12 --save whole.safetensors" + common).status, 0);
  const std::string checkpointed =
      "train --checkpoint run --checkpoint-every 4 --resume --save parts.safetensors" + common;
  ASSERT_EQ(run(checkpointed + " --steps 8").status, 0);
  const ProgramRun rest = run(checkpointed + " --steps 12 --format json");
  ASSERT_EQ(rest.status, 0) << rest.err;
  EXPECT_EQ(Json::parse(rest.out, "train").at("rows").items()[0].at("resumed_from").as_int(), 8);
  EXPECT_EQ(file("whole.safetensors"), file("parts.safetensors"));
}

TEST_F(TrainTest, ASignalSavesACheckpointAndEndsWithItsNumber) {
  for (const auto& [signal, status] :
       {std::pair{SIGINT, 130}, std::pair{SIGTERM, 143}, std::pair{SIGHUP, 129}}) {
    const ProgramRun stopped =
        run("train --text text.txt --steps 100000000 --checkpoint run" + std::to_string(signal) +
                kSizes,
            {.while_running = [signal = signal](pid_t child) { ::kill(child, signal); },
             .delay_ms = 1500});
    EXPECT_EQ(stopped.status, status) << stopped.err;
    EXPECT_TRUE(contains(stopped.err, "received: training ends after the step under way"));
    EXPECT_TRUE(contains(stopped.err, "--resume continues"));
    EXPECT_TRUE(std::filesystem::exists(folder_ / ("run" + std::to_string(signal)) / "latest"));
  }
}

TEST_F(TrainTest, TheOracleTrainsEvaluatesAndContinues) {
  const std::string train =
      "train --device reference --text text.txt --lr 0.01 --checkpoint run "
      "--resume --save w.safetensors" +
      kSizes;
  ASSERT_EQ(run(train + " --steps 1").status, 0);
  const ProgramRun rest = run(train + " --steps 2 --format json");
  ASSERT_EQ(rest.status, 0) << rest.err;
  EXPECT_EQ(Json::parse(rest.out, "train").at("rows").items()[0].at("resumed_from").as_int(), 1);
  EXPECT_EQ(SafetensorsFile(folder_ / "w.safetensors").read("lm_head.weight").dtype, DType::kF64);
  const ProgramRun loss =
      run("eval --device reference --init w.safetensors --text text.txt --batch 1 --context 8 "
          "--batches 1 --gradients g.safetensors");
  EXPECT_EQ(loss.status, 0) << loss.err;
  const ProgramRun text =
      run("generate --device reference --init w.safetensors --prompt 'the ' --max-tokens 2");
  EXPECT_EQ(text.status, 0) << text.err;
  // Narrow weights are widened; wide ones do not fit a narrow store.
  ASSERT_EQ(run("train --text text.txt --steps 1 --save narrow.safetensors" + kSizes).status, 0);
  EXPECT_EQ(run("eval --device reference --init narrow.safetensors --text text.txt --batch 1 "
                "--context 8 --batches 1")
                .status,
            0);
  const ProgramRun narrowed = run("eval --init w.safetensors --text text.txt --context 8");
  EXPECT_EQ(narrowed.status, 3);
  EXPECT_TRUE(contains(narrowed.err, "is f64"));
}

TEST_F(TrainTest, TooLittleMemoryIsAClearMessageAndStatusFour) {
  const ProgramRun done = run("train --text text.txt --memory-limit 100KiB" + kSizes);
  EXPECT_EQ(done.status, 4);
  EXPECT_TRUE(contains(done.err, "out of memory"));
}

TEST_F(TrainTest, TokenNumbersNeedNoTokenizer) {
  std::string tokens;
  for (int i = 0; i < 400; ++i) tokens += std::string{static_cast<char>(i % 50), 0};
  folder_.write("tokens.bin", tokens);
  const ProgramRun done =
      run("train --tokens tokens.bin --token-dtype uint16 --vocab 50 --steps 2 "
          "--order sequential --schedule cosine --clip 1 --weight-decay 0.1 "
          "--save w.safetensors" +
          kSizes);
  ASSERT_EQ(done.status, 0) << done.err;
  EXPECT_FALSE(std::filesystem::exists(folder_ / "w.safetensors.tokenizer"));
  const ProgramRun numbers =
      run("generate --init w.safetensors --prompt-tokens 1,2,3 --max-tokens 4 --format json");
  ASSERT_EQ(numbers.status, 0) << numbers.err;
  const Json row = Json::parse(numbers.out, "generate").at("rows").items()[0];
  EXPECT_EQ(row.at("new_tokens").as_int(), 4);
  EXPECT_EQ(row.at("prompt_tokens").as_int(), 3);
}

TEST_F(TrainTest, SamplingHeedsHowItIsToRunAndSaysItsRate) {
  const std::string shown =
      "generate --prompt-tokens 1,2,3 --temperature 0 "
      "--d-model 16 --d-ff 32 --layers 1 --heads 2 --vocab 50 --max-tokens ";
  const std::string sample = shown + "4 --format csv";
  const auto tokens = [&](const std::string& more) {
    const ProgramRun done = run(sample + more);
    EXPECT_EQ(done.status, 0) << done.err;
    return done.out.substr(0, done.out.rfind(','));  // without the time
  };
  EXPECT_EQ(tokens(" --ops primitive"), tokens(" --ops fused"));
  EXPECT_EQ(run(sample + " --ops primitive,fused").status, 2);
  EXPECT_EQ(tokens(" --attention flash"), tokens(" --attention naive"));
  EXPECT_EQ(tokens(" --executor compiled"), tokens(" --executor eager"));
  const ProgramRun many = run(shown + "40");
  EXPECT_TRUE(contains(many.err, "40 tokens, ")) << many.err;
  EXPECT_TRUE(contains(many.err, " a second after the second")) << many.err;
}

}  // namespace
}  // namespace tracestep
