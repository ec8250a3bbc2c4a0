#include "train/loop.h"
#include "train/generate.h"

#include <gtest/gtest.h>

#include <fstream>
#include <numeric>

#include "backends/cpu/cpu_device.h"
#include "backends/reference/reference_device.h"
#include "exec/eager.h"
#include "ops/functions.h"
#include "spec/parse_words.h"
#include "spec/step_program.h"
#include "support/host_values.h"
#include "support/temp_folder.h"
#include "weights/model_store.h"

namespace tracestep {
namespace {

using testing::to_doubles;

TokenSourcePtr some_tokens() {
  std::vector<std::int32_t> tokens;
  std::uint32_t state = 7;
  for (int i = 0; i < 1500; ++i) {
    state = state * 1664525u + 1013904223u;
    tokens.push_back(static_cast<std::int32_t>((state >> 24) % 23));
  }
  return memory_tokens("test tokens", tokens);
}

TrainOptions tiny_options() {
  TrainOptions out;
  out.run.model = {.vocab = 23, .d_model = 16, .d_ff = 32, .layers = 2, .heads = 2};
  out.run.shape = {.batch = 4, .context = 8};
  out.steps = 12;
  out.run.seed = 3;
  out.schedule = {ScheduleKind::kCosine, 1e-2, 1e-3, 2, 12};
  out.run.optimizer.weight_decay = 0.1;
  out.run.optimizer.clip = 1.0;
  return out;
}

std::vector<TrainStep> run_on(Device& device, const TrainOptions& options) {
  std::vector<TrainStep> out;
  train(device, options, some_tokens(), some_tokens(), nullptr,
        [&](const TrainStep& step) { out.push_back(step); });
  return out;
}

std::vector<TrainStep> run(const TrainOptions& options, int threads = 2) {
  return run_on(*make_cpu_device({.threads = threads}), options);
}

std::string bytes_of(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

class LoopTest : public ::testing::Test {
 protected:
  void SetUp() override { ops::register_all(); }
  TempFolder folder_;
};

TEST_F(LoopTest, TheLossFalls) {
  const std::vector<TrainStep> steps = run(tiny_options());
  EXPECT_LT(steps.back().loss, steps.front().loss);
  EXPECT_GT(steps.front().grad_norm, 0.0);
}

// A sample is what the weights of its step continue with, and no number depends on it.
TEST_F(LoopTest, SamplesAreThoseOfTheWeightsAndChangeNothing) {
  for (const char* precision : {"fp32", "bf16-pure"}) {
    TrainOptions options = tiny_options();
    options.run.precision = parse_precision("test", precision);
    options.save = folder_.path() / "without.safetensors";
    const std::vector<TrainStep> without = run(options);
    options.save = folder_.path() / "with.safetensors";
    options.sample_every = 4;
    options.sample_prompt = {3, 1};
    const std::vector<TrainStep> with = run(options);
    for (std::size_t i = 0; i < with.size(); ++i) {
      EXPECT_EQ(with[i].loss, without[i].loss);
      EXPECT_EQ(with[i].sample.size(), (i + 1) % 4 == 0 ? 64u : 0u);
    }
    EXPECT_EQ(bytes_of(folder_ / "with.safetensors"), bytes_of(folder_ / "without.safetensors"));
    GenerateOptions generated{
        .run = options.run, .init = options.save, .prompt = {3, 1}, .tokens = 64};
    generated.run.shape = {.batch = 1, .context = 66};
    const auto device = make_cpu_device({.threads = 1});
    EXPECT_EQ(generate(*device, generated, nullptr, {}), with.back().sample);
  }
}

TEST_F(LoopTest, ASampleWithoutRoomForTheWeightsIsLeftOut) {
  TrainOptions options = tiny_options();
  options.run.executor = ExecutorKind::kArena;
  const auto first = make_cpu_device({.threads = 1});
  const double loss = run_on(*first, options).back().loss;
  options.sample_every = 1;
  options.sample_prompt = {3};
  const std::int64_t peak = first->allocator().stats().peak_requested_bytes;
  const auto limited = make_cpu_device({.threads = 1, .memory_limit = peak});
  const std::vector<TrainStep> steps = run_on(*limited, options);
  EXPECT_EQ(steps.back().loss, loss);
  EXPECT_TRUE(steps.front().sample.empty());
}

TEST_F(LoopTest, TheOracleTakesTheSameSteps) {
  TrainOptions options = tiny_options();
  options.steps = 3;
  for (std::int64_t accumulate : {1, 2}) {
    options.run.accumulate = accumulate;
    const std::vector<TrainStep> expected = run(options);
    const std::vector<TrainStep> wide = run_on(*make_reference_device(), options);
    for (std::size_t i = 0; i < 3; ++i) {
      EXPECT_NEAR(wide[i].loss, expected[i].loss, 2e-5);
      EXPECT_NEAR(wide[i].grad_norm, expected[i].grad_norm, 1e-4);
    }
  }
}

// A compiled step rounds sums of products once.
TEST_F(LoopTest, EveryExecutorTakesTheSameSteps) {
  TrainOptions options = tiny_options();
  options.validate_every = 4;
  for (std::int64_t accumulate : {1, 3}) {
    options.run.accumulate = accumulate;
    options.run.executor = ExecutorKind::kEager;
    const std::vector<TrainStep> eager = run(options);
    options.run.executor = ExecutorKind::kCompiled;
    const std::vector<TrainStep> compiled = run(options);
    ASSERT_EQ(compiled.size(), eager.size());
    for (std::size_t i = 0; i < eager.size(); ++i) {
      EXPECT_NEAR(compiled[i].loss, eager[i].loss, 2e-5);
      EXPECT_NEAR(compiled[i].grad_norm, eager[i].grad_norm, 1e-4);
      ASSERT_EQ(compiled[i].validation_loss.has_value(), eager[i].validation_loss.has_value());
      if (!eager[i].validation_loss) continue;
      EXPECT_NEAR(*compiled[i].validation_loss, *eager[i].validation_loss, 2e-5);
    }
  }
}

TEST_F(LoopTest, ACompiledRunHasTheSameBitsEveryTimeAndResumes) {
  TrainOptions options = tiny_options();
  options.run.executor = ExecutorKind::kCompiled;
  options.save = folder_.path() / "whole.safetensors";
  run(options);
  const std::string expected = bytes_of(options.save);
  options.checkpoint = folder_.path() / "checkpoints";
  options.resume = true;
  options.steps = 7;
  run(options, 1);
  options.steps = 12;
  run(options, 3);
  EXPECT_TRUE(bytes_of(options.save) == expected);
}

TEST_F(LoopTest, AResumeMayCrossExecutors) {
  TrainOptions options = tiny_options();
  const std::vector<TrainStep> expected = run(options);
  options.checkpoint = folder_.path() / "checkpoints";
  options.resume = true;
  for (std::int64_t steps : {4, 8, 12}) {
    options.steps = steps;
    options.run.executor = steps == 8 ? ExecutorKind::kCompiled : ExecutorKind::kEager;
    for (const TrainStep& step : run(options)) {
      EXPECT_NEAR(step.loss, expected[static_cast<std::size_t>(step.step) - 1].loss, 2e-5);
    }
  }
}

// A vocabulary of 23 is odd. Files hold the model's own tensors alone.
TEST_F(LoopTest, ARunWithAPaddedHeadContinuesWithoutPaddingAndBack) {
  for (std::int64_t accumulate : {1, 2}) {
    TrainOptions options = tiny_options();
    options.run.precision = parse_precision("test", "bf16");
    options.run.executor = ExecutorKind::kCompiled;
    options.run.compile_passes = {"shadow", "merge", "join", "overwrite", "epilogue"};
    options.run.accumulate = accumulate;
    options.save = folder_.path() / "plain.safetensors";
    const std::vector<TrainStep> expected = run(options);
    options.save = folder_.path() / "padded.safetensors";
    options.checkpoint = folder_.path() / fmt::format("checkpoints{}", accumulate);
    options.resume = true;
    for (std::int64_t steps : {4, 8, 12}) {
      options.steps = steps;
      options.run.compile_passes->erase("pad");
      if (steps != 8) options.run.compile_passes->insert("pad");
      for (const TrainStep& step : run(options)) {
        EXPECT_NEAR(step.loss, expected[static_cast<std::size_t>(step.step) - 1].loss, 2e-3);
      }
    }
    EXPECT_EQ(bytes_of(folder_.path() / "plain.safetensors").size(), bytes_of(options.save).size());
  }
}

TEST_F(LoopTest, WithTheSamePassesEveryExecutorContinuesWithTheSameBits) {
  for (const char* precision : {"fp32", "bf16"}) {
    TrainOptions options = tiny_options();
    options.run.precision = parse_precision("test", precision);
    options.run.compile_passes.emplace();
    options.save = folder_.path() / "whole.safetensors";
    run(options);
    const std::string expected = bytes_of(options.save);
    options.checkpoint = folder_.path() / precision;
    options.resume = true;
    ::testing::internal::CaptureStderr();
    for (std::int64_t steps : {4, 8, 12}) {
      options.steps = steps;
      options.run.executor = steps == 8 ? ExecutorKind::kCompiled : ExecutorKind::kEager;
      run(options);
    }
    EXPECT_EQ(::testing::internal::GetCapturedStderr().find("differently"), std::string::npos);
    EXPECT_TRUE(bytes_of(options.save) == expected) << precision;
  }
}

// A run of `whole` that ends after step 7 and goes on has the bits of one that does not end there.
void expect_exact_resume(TrainOptions whole, const std::filesystem::path& folder) {
  TrainOptions part = whole;
  whole.save = folder / "whole.safetensors";
  whole.log = folder / "log.jsonl";
  const std::vector<TrainStep> expected = run(whole);

  part.checkpoint = folder / "checkpoints";
  part.checkpoint_every = 5;
  part.resume = true;
  part.steps = 7;  // "killed" after a checkpoint at 5 and one at 7
  run(part);
  part.steps = 12;
  part.save = folder / "resumed.safetensors";
  const std::vector<TrainStep> resumed = run(part, 3);
  ASSERT_EQ(resumed.size(), 5u);
  for (std::size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(resumed[i].step, expected[i + 7].step);
    EXPECT_EQ(resumed[i].loss, expected[i + 7].loss);
    EXPECT_EQ(resumed[i].grad_norm, expected[i + 7].grad_norm);
  }
  EXPECT_TRUE(bytes_of(whole.save) == bytes_of(part.save)) << folder;
}

TEST_F(LoopTest, AResumedRunIsBitIdenticalToAnUninterruptedOne) {
  for (Moments moments : kAll<Moments>) {
    TrainOptions whole = tiny_options();
    whole.run.optimizer.moments = moments;
    expect_exact_resume(whole, TempFolder().path());
  }
}

TEST_F(LoopTest, RunsOfMuonResumeExactlyInEveryForm) {
  for (const Moments moments : {Moments::kF32, Moments::kBF16}) {
    for (const std::int64_t accumulate : {1, 2}) {
      TrainOptions whole = tiny_options();
      whole.run.optimizer.kind = OptimizerKind::kMuon;
      whole.run.optimizer.moments = moments;
      whole.run.optimizer.momentum = 0.9;
      whole.run.accumulate = accumulate;
      expect_exact_resume(whole, TempFolder().path());
    }
  }
}

TEST_F(LoopTest, GradientsThatAreAddedUpInSixteenBitsResumeExactly) {
  for (const ExecutorKind executor : {ExecutorKind::kEager, ExecutorKind::kCompiled}) {
    TrainOptions whole = tiny_options();
    whole.run.executor = executor;
    whole.run.precision = parse_precision("test", "bf16");
    whole.run.accumulate = 3;
    whole.run.grad_accum_dtype = GradientSums::kLow;
    expect_exact_resume(whole, TempFolder().path());
  }
}

// Frozen weights are in the checkpoint, so that nothing else is needed, and in 16 bits do not move.
TEST_F(LoopTest, AdaptersAndFrozenPartsResumeExactlyAndKeepTheirBase) {
  for (const char* precision : {"fp32", "bf16"}) {
    for (const char* lora : {"none", "r=2,alpha=4,targets=all,dropout=0.2"}) {
      TrainOptions options = tiny_options();
      options.run.precision = parse_precision("test", precision);
      options.run.lora = parse_adapters("test", lora);
      if (!options.run.lora.is_on()) options.run.frozen = {{"layers.0", "token_embeddings"}};
      const TempFolder folder;
      expect_exact_resume(options, folder.path());
      options.run.accumulate = 2;
      const TempFolder again;
      expect_exact_resume(options, again.path());
      options.steps = 1;
      options.save = folder / "first.safetensors";
      run(options);
      options.steps = 5;
      options.save = folder / "last.safetensors";
      EXPECT_LT(run(options).back().loss, 5.0);
      const SafetensorsFile first(folder / "first.safetensors"), last(folder / "last.safetensors");
      int moved = 0;
      for (const std::string& name : first.names()) {
        const bool is_frozen = options.run.lora.is_on()
                                   ? !is_adapter(name)
                                   : name.starts_with("layers.0") || name.starts_with("token");
        EXPECT_EQ(first.read(name).bytes == last.read(name).bytes, is_frozen) << name;
        moved += is_frozen ? 0 : 1;
      }
      EXPECT_GT(moved, 4);
    }
  }
}

TEST_F(LoopTest, WeightsThatAreRoundedAtRandomResumeWithTheSameBits) {
  TrainOptions whole = tiny_options();
  whole.run.precision = parse_precision("test", "bf16-pure");
  whole.rounding = Rounding::kRandom;
  expect_exact_resume(whole, folder_.path());
}

TEST_F(LoopTest, WeightsThatAreNotInBfloat16AreNotRoundedAtRandom) {
  TrainOptions options = tiny_options();
  options.rounding = Rounding::kRandom;
  for (const char* precision : {"fp32", "bf16", "fp16-pure"}) {
    options.run.precision = parse_precision("test", precision);
    EXPECT_THROW(run(options), Error) << precision;
  }
}

// A token follows from the one before, but for every seventh.
TokenSourcePtr tokens_of_a_rule() {
  std::vector<std::int32_t> tokens{1};
  for (std::int32_t i = 1; i < 3000; ++i) {
    tokens.push_back(i % 7 == 0 ? (i * i / 7) % 23 : (5 * tokens.back() + 3) % 23);
  }
  return memory_tokens("test tokens", tokens);
}

// docs/memory.md: 200 steps end within 3 % of the same loss.
TEST_F(LoopTest, MomentsInEightBitsLearnAsThoseInFloat32Do) {
  std::map<Moments, double> last;  // the mean of the last 20 steps
  for (Moments moments : {Moments::kF32, Moments::k8Bit}) {
    TrainOptions options = tiny_options();
    options.steps = 200;
    options.schedule = {ScheduleKind::kCosine, 1e-2, 1e-3, 2, 200};
    options.run.optimizer.moments = moments;
    double first = 0;
    train(*make_cpu_device({.threads = 2}), options, tokens_of_a_rule(), nullptr, nullptr,
          [&](const TrainStep& step) {
            if (step.step == 1) first = step.loss;
            if (step.step > 180) last[moments] += step.loss / 20;
          });
    EXPECT_LT(last[moments], 0.6 * first);
  }
  EXPECT_NE(last[Moments::k8Bit], last[Moments::kF32]);
  RecordProperty("losses", fmt::format("{} {}", last[Moments::kF32], last[Moments::k8Bit]));
  EXPECT_NEAR(last[Moments::k8Bit], last[Moments::kF32], 0.03 * last[Moments::kF32]);
}

// Scales come from the step before the checkpoint.
TEST_F(LoopTest, ARunInEightBitsResumesWithTheScalesThatItHad) {
  TrainOptions whole = tiny_options();
  whole.run.precision = parse_precision("test", "fp8");
  whole.run.fp8_products = Float8Products::kAll;
  expect_exact_resume(whole, folder_.path());
}

// Checkpoints are interchangeable: a run in bf16 goes on in 8 bits, and back.
TEST_F(LoopTest, AResumeMayCrossPrecisions) {
  TrainOptions options = tiny_options();
  options.run.precision = parse_precision("test", "bf16");
  const std::vector<TrainStep> expected = run(options);
  options.run.fp8_products = Float8Products::kAll;
  options.checkpoint = folder_.path() / "checkpoints";
  options.resume = true;
  options.change = {"precision"};
  for (const auto& [precision, steps] :
       {std::pair{"bf16", 4}, std::pair{"fp8", 8}, std::pair{"bf16", 12}}) {
    options.run.precision = parse_precision("test", precision);
    options.steps = steps;
    const std::vector<TrainStep> taken = run(options);
    ASSERT_EQ(taken.size(), 4u) << precision;
    for (const TrainStep& step : taken) {
      EXPECT_NEAR(step.loss, expected[static_cast<std::size_t>(step.step - 1)].loss, 0.1);
    }
  }
}

TEST_F(LoopTest, ResumingWithAnotherModelIsRefused) {
  TrainOptions options = tiny_options();
  options.checkpoint = folder_.path() / "checkpoints";
  options.resume = true;
  options.steps = 2;
  run(options);
  options.run.shape.batch = 2;
  EXPECT_THROW(run(options), Error);
}

TEST_F(LoopTest, AccumulationOverMicroBatchesGivesTheGradientOfTheWholeBatch) {
  TrainOptions whole = tiny_options();
  whole.order = Order::kSequential;
  whole.steps = 4;
  TrainOptions split = whole;
  split.run.shape.batch = 2;
  split.run.accumulate = 2;
  const std::vector<TrainStep> a = run(whole), b = run(split);
  for (std::size_t i = 0; i < a.size(); ++i) {
    EXPECT_NEAR(a[i].loss, b[i].loss, 2e-5);
    EXPECT_NEAR(a[i].grad_norm, b[i].grad_norm, 1e-4);
  }
}

TEST_F(LoopTest, TheLogIsContinuedWithoutRepeatingSteps) {
  TrainOptions options = tiny_options();
  options.checkpoint = folder_.path() / "checkpoints";
  options.log = folder_.path() / "log.jsonl";
  options.resume = true;
  options.steps = 4;
  run(options);
  options.steps = 6;
  run(options);
  std::ifstream in(options.log);
  std::string line;
  std::int64_t expected = 1;
  while (std::getline(in, line)) {
    EXPECT_EQ(Json::parse(line, "log").at("step").as_int(), expected++);
  }
  EXPECT_EQ(expected, 7);
}

TEST_F(LoopTest, AnUnwritableOutputIsFoundBeforeTheFirstStep) {
  TrainOptions options = tiny_options();
  options.save = folder_.path() / "missing" / "w.safetensors";
  int steps = 0;
  const auto device = make_cpu_device({.threads = 1});
  EXPECT_THROW(
      train(*device, options, some_tokens(), nullptr, nullptr, [&](const TrainStep&) { ++steps; }),
      Error);
  EXPECT_EQ(steps, 0);
}

// Decodes `tokens` by so many at a time, and compares the logits behind each run with those of the
// whole sequence.
void expect_decoded(const ModelConfig& model, std::span<const std::int64_t> counts) {
  const auto device = make_cpu_device({.threads = 2});
  Store store(*device);
  const std::vector<std::int64_t> tokens{3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5};
  const std::int64_t length = std::ssize(tokens);
  const RunSpec spec{.model = model, .shape = {1, length}, .mode = Mode::kInference};
  EagerExecutor full(store, step_program(spec, *device));
  initialize_parameters(store, 5);
  full.set_input("tokens", HostTensor::of<std::int64_t>(DType::kI64, {1, length}, tokens));
  full.run();
  const std::vector<double> expected = to_doubles(full.output("logits"));
  const double bound = 1e-5 * testing::max_abs(expected);
  std::int64_t done = 0;
  for (const std::int64_t n : counts) {
    EagerExecutor decode(store, program_for(decode_program(spec, n), spec, *device));
    const auto some = std::span(tokens).subspan(static_cast<std::size_t>(done));
    decode.set_input("tokens", HostTensor::of<std::int64_t>(
                                   DType::kI64, {1, n}, some.first(static_cast<std::size_t>(n))));
    decode.set_input("position",
                     HostTensor::of<std::int64_t>(DType::kI64, {}, std::span(&done, 1)));
    if (n > 1) {
      std::vector<std::int64_t> all(static_cast<std::size_t>(n));
      std::iota(all.begin(), all.end(), done);
      decode.set_input("positions", HostTensor::of<std::int64_t>(DType::kI64, {n},
                                                                 std::span(std::as_const(all))));
    }
    decode.run();
    done += n;
    const std::vector<double> row = to_doubles(decode.output("logits"));
    ASSERT_EQ(std::ssize(row), model.vocab);
    for (std::size_t v = 0; v < row.size(); ++v) {
      EXPECT_NEAR(row[v], expected[static_cast<std::size_t>(done - 1) * row.size() + v], bound);
    }
  }
}

TEST_F(LoopTest, CachedDecodingGivesTheLogitsOfTheWholeSequence) {
  const std::int64_t one_by_one[] = {1, 1, 1, 1, 1, 1}, at_once[] = {4, 1, 3, 2, 1};
  expect_decoded(tiny_options().run.model, one_by_one);
  expect_decoded(tiny_options().run.model, at_once);
}

TEST_F(LoopTest, APromptOfSeveralRunsIsContinuedAsTokenByToken) {
  const auto device = make_cpu_device({.threads = 2});
  GenerateOptions options;
  options.run = {.model = tiny_options().run.model, .shape = {1, 300}, .seed = 9};
  options.tokens = 5;
  options.sampling.temperature = 0.0;
  for (int i = 0; i < 290; ++i) options.prompt.push_back(i * i % options.run.model.vocab);
  const auto continued = generate(*device, options, nullptr, {});
  EXPECT_EQ(continued.size(), 5u);
  // The text is continued as a longer and longer prompt, whose runs begin elsewhere.
  for (const std::int64_t token : continued) {
    options.tokens = 1;
    EXPECT_EQ(generate(*device, options, nullptr, {}), std::vector{token});
    options.prompt.push_back(token);
  }
}

// Many tokens without the host in between are those that the host would take from the logits.
TEST_F(LoopTest, TheMostLikelyTokensAreThoseOfTheLogitsToTheEndOfTheContext) {
  const auto device = make_cpu_device({.threads = 2});
  for (const ExecutorKind executor : {ExecutorKind::kEager, ExecutorKind::kArena}) {
    GenerateOptions options{.run = {.model = tiny_options().run.model, .shape = {1, 40}, .seed = 9},
                            .prompt = {1, 2}};
    options.run.executor = executor;
    options.tokens = 100;
    options.sampling.temperature = 0.0;
    std::int64_t shown = 0;
    const auto greedy = generate(*device, options, nullptr, [&](std::int64_t) { ++shown; });
    EXPECT_EQ(greedy.size(), 39u);
    EXPECT_EQ(shown, 39);
    options.sampling = {.temperature = 1.0, .top_k = 1};
    EXPECT_EQ(generate(*device, options, nullptr, {}), greedy);
  }
}

// Caches of layers with a window are shorter than the text, which slides in them while the prompt
// is read and behind it; each token is the most likely one of the whole text before it.
TEST_F(LoopTest, ALongTextSlidesInTheCachesOfLayersWithAWindow) {
  const auto device = make_cpu_device({.threads = 2});
  GenerateOptions options;
  options.run = {.model = tiny_options().run.model, .shape = {1, 400}, .seed = 9};
  options.run.model.window = 7;
  options.run.model.window_layers = "wf";
  EXPECT_EQ(windowed_cache(options.run.model, 400).length, 256);
  options.tokens = 136;
  for (int i = 0; i < 265; ++i) options.prompt.push_back(i * i % options.run.model.vocab);
  for (const bool is_greedy : {false, true}) {
    options.sampling = {.temperature = is_greedy ? 0.0 : 1.0, .top_k = 1};
    options.run.executor = is_greedy ? ExecutorKind::kArena : ExecutorKind::kEager;
    std::vector<std::int64_t> text = options.prompt;
    const auto out = generate(*device, options, nullptr, {});
    EXPECT_EQ(out.size(), 136u);
    text.insert(text.end(), out.begin(), out.end() - 1);
    Store store(*device);
    RunSpec spec = options.run;
    spec.mode = Mode::kInference;
    EagerExecutor whole(store, step_program(spec, *device));
    initialize_parameters(store, spec.seed);
    whole.set_input("tokens", HostTensor::of<std::int64_t>(DType::kI64, {1, 400},
                                                           std::span(std::as_const(text))));
    whole.run();
    const std::vector<double> logits = to_doubles(whole.output("logits"));
    for (std::size_t i = 0; i < out.size(); ++i) {
      const auto vocab = static_cast<std::size_t>(spec.model.vocab);
      const auto row = std::span(logits).subspan((264 + i) * vocab, vocab);
      EXPECT_EQ(std::ranges::max_element(row) - row.begin(), out[i]) << i;
    }
  }
}

TEST_F(LoopTest, SamplingDependsOnTheSeedAlone) {
  const auto device = make_cpu_device({.threads = 2});
  GenerateOptions options{.run = {.model = tiny_options().run.model, .shape = {1, 16}, .seed = 9},
                          .prompt = {1, 2}};
  options.tokens = 10;
  const auto a = generate(*device, options, nullptr, {});
  const auto b = generate(*device, options, nullptr, {});
  EXPECT_EQ(a, b);
  EXPECT_EQ(a.size(), 10u);
}

}  // namespace
}  // namespace tracestep
