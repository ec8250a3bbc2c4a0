// Runs that meet a number that is not finite: how they end, and what they leave.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "backends/cpu/cpu_device.h"
#include "ops/functions.h"
#include "spec/step_program.h"
#include "support/backends.h"
#include "support/faulting_device.h"
#include "support/temp_folder.h"
#include "support/tiny_training.h"
#include "train/evaluate.h"
#include "train/generate.h"
#include "train/loop.h"
#include "weights/checkpoint_files.h"
#include "weights/model_store.h"

namespace tracestep {
namespace {

using testing::some_tokens;

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int kNever = std::numeric_limits<int>::max();

class DivergenceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ops::register_all();
    options_.run.model = {.vocab = 23, .d_model = 16, .d_ff = 32, .layers = 1, .heads = 2};
    options_.run.shape = {.batch = 2, .context = 8};
    options_.steps = 8;
    options_.schedule.lr = 1e-2;
    options_.checkpoint = folder_ / "run";
    options_.checkpoint_every = 2;
    options_.save = folder_ / "w.safetensors";
    options_.log = folder_ / "log.jsonl";
  }

  // The message that the run ends with.
  std::string failure(const std::function<void(const TrainStep&)>& progress = {}) {
    return message_of(ErrorCode::kNotFinite, [&] { run(progress); });
  }
  TrainResult run(const std::function<void(const TrainStep&)>& progress = {}) {
    return run_on(*make_cpu_device({.threads = 1}), progress);
  }
  TrainResult run_on(Device& device, const std::function<void(const TrainStep&)>& progress = {}) {
    return train(device, options_, some_tokens(), nullptr, nullptr, progress);
  }

  // The checkpoints that are there; all of them must be finite.
  std::vector<std::string> checkpoints() const {
    std::vector<std::string> out;
    if (!std::filesystem::exists(options_.checkpoint)) return out;  // one that stayed empty is gone
    for (const auto& entry : std::filesystem::directory_iterator(options_.checkpoint)) {
      if (!entry.is_directory()) continue;
      out.push_back(entry.path().filename());
      for (const char* file : {"model.safetensors", "state.safetensors"}) {
        const SavedTensors tensors(entry.path() / file);
        EXPECT_FALSE(find_not_finite(tensors).has_value()) << entry.path();
      }
    }
    std::ranges::sort(out);
    return out;
  }

  std::filesystem::path write_weights(const std::string& poisoned, float value) {
    const auto device = make_cpu_device({.threads = 1});
    Store store(*device);
    store.bind(loss_program(options_.run));
    initialize_parameters(store, 1);
    auto weights = parameters_of(store);
    weights.at(poisoned).as<float>()[3] = value;
    const auto path = folder_ / "poisoned.safetensors";
    write_safetensors(path, TensorMap(weights.begin(), weights.end()));
    return path;
  }

  TempFolder folder_;
  TrainOptions options_;
};

TEST_F(DivergenceTest, ARunWithAnAbsurdRateEndsAtTheFirstBadStepAndKeepsWhatIsFinite) {
  options_.schedule.lr = 1e30;
  options_.checkpoint_every = 1;
  std::vector<TrainStep> steps;
  const std::string message = failure([&](const TrainStep& step) { steps.push_back(step); });
  ASSERT_EQ(steps.size(), 2u);
  EXPECT_TRUE(steps[1].not_finite);
  EXPECT_THAT(message, HasSubstr("[step 2] the loss is"));
  EXPECT_THAT(message, HasSubstr("; first, the result of "));
  EXPECT_THAT(message, HasSubstr("weights have grown to 1e+30"));
  EXPECT_THAT(message, HasSubstr("the learning rate moves each weight by up to 1e+30"));
  EXPECT_THAT(message, HasSubstr("the last finite checkpoint is step 1 in "));
  EXPECT_THAT(checkpoints(), ElementsAre("step-00000001"));
  EXPECT_FALSE(std::filesystem::exists(options_.save));
  const std::string log = content_of(options_.log);
  EXPECT_EQ(std::ranges::count(log, '\n'), 2);
  EXPECT_THAT(log, HasSubstr(R"({"step":2,"loss":null,)"));
}

// Poisoned from outside in the middle of a run, as a failing machine would: once.
TEST_F(DivergenceTest, ABadStepInTheMiddleSavesTheStepsBeforeItAndIsResumed) {
  const TrainResult expected = run();
  std::filesystem::remove_all(options_.checkpoint);
  std::filesystem::remove(options_.save);
  testing::FaultingDevice device(make_cpu_device({.threads = 1}),
                                 testing::FaultKind::kNotFiniteResult, kNever);
  const std::string message = message_of(ErrorCode::kNotFinite, [&] {
    run_on(device, [&](const TrainStep& step) {
      if (step.step == 5) device.break_after(10);
    });
  });
  EXPECT_THAT(message, HasSubstr("[step 6]"));
  EXPECT_THAT(message, HasSubstr("computed again, every value was finite"));
  EXPECT_THAT(message, HasSubstr("the last finite checkpoint is step 5 in "));
  EXPECT_THAT(checkpoints(), ElementsAre("step-00000004", "step-00000005"));
  EXPECT_FALSE(std::filesystem::exists(options_.save));
  options_.resume = true;
  const TrainResult resumed = run();
  EXPECT_EQ(resumed.resumed_from, 5);
  EXPECT_EQ(resumed.last.loss, expected.last.loss);
}

TEST_F(DivergenceTest, AnUpdateThatOverflowsIsNeitherSavedNorDoesItRemoveWhatIsGood) {
  options_.steps = 4;
  run();
  std::filesystem::remove(options_.save);
  options_.steps = 8;
  options_.resume = true;
  options_.schedule.lr = 3e38;
  options_.run.optimizer.weight_decay = 10.0;
  options_.change = {"lr", "weight-decay"};
  options_.checkpoint_every = 1;
  const std::string message = failure();
  EXPECT_THAT(message, HasSubstr("[step 5] what it leaves is not saved; first, "));
  EXPECT_THAT(message, HasSubstr("the update of this step overflowed"));
  EXPECT_THAT(message, HasSubstr("the last finite checkpoint is step 4 in "));
  EXPECT_THAT(checkpoints(), ElementsAre("step-00000002", "step-00000004"));

  options_.steps = 5;  // the last step: only --save is left to look
  options_.checkpoint.clear();
  options_.checkpoint_every = 0;
  options_.resume = false;
  options_.schedule.lr = 3e38;
  options_.steps = 1;
  EXPECT_THAT(failure(), HasSubstr("nothing is saved without option checkpoint"));
  EXPECT_FALSE(std::filesystem::exists(options_.save));
}

TEST_F(DivergenceTest, ABadFirstStepSavesNothing) {
  options_.init = write_weights("lm_head.weight", 3e38F);
  const std::string message = failure();
  EXPECT_THAT(message, HasSubstr("[step 1] the loss is "));
  EXPECT_THAT(message, HasSubstr("weights have grown to 3e+38 (lm_head.weight)"));
  EXPECT_THAT(message, Not(HasSubstr("the learning rate"))) << "which is as usual";
  EXPECT_THAT(message, HasSubstr("there is no checkpoint in "));
  EXPECT_THAT(checkpoints(), ElementsAre());
}

TEST_F(DivergenceTest, TheRangeOfFloat16IsNamedWhereItEnds) {
  options_.run.precision = parse_precision("test", "fp16-pure");
  options_.schedule.lr = 1e6;
  EXPECT_THAT(failure(), HasSubstr("float16 ends at 65504"));
}

TEST_F(DivergenceTest, WeightsThatAreNotFiniteAreRefusedBeforeTheFirstStep) {
  options_.init = write_weights("lm_head.weight", std::nanf(""));
  int steps = 0;
  const std::string message = failure([&](const TrainStep&) { ++steps; });
  EXPECT_THAT(message, HasSubstr("poisoned.safetensors] lm_head.weight holds 1 NaN"));
  EXPECT_EQ(steps, 0);
}

TEST_F(DivergenceTest, AValidationLossThatIsNotFiniteEndsTheRunUnsaved) {
  options_.validate_every = 2;
  testing::FaultingDevice device(make_cpu_device({.threads = 1}),
                                 testing::FaultKind::kNotFiniteResult, kNever);
  const std::string message = message_of(ErrorCode::kNotFinite, [&] {
    train(device, options_, some_tokens(), some_tokens(), nullptr, [&](const TrainStep& step) {
      const int launches_per_step = kNever - device.launches_left();
      if (step.step == 1) device.break_after(launches_per_step + 10);  // behind step 2
    });
  });
  EXPECT_THAT(message, HasSubstr("[step 2] the validation loss is "));
  EXPECT_THAT(message, HasSubstr("there is no checkpoint in "));
  EXPECT_THAT(checkpoints(), ElementsAre());
}

TEST_F(DivergenceTest, EvaluationTellsOfWeightsAndOfResultsThatAreNotFinite) {
  EvalOptions options{.run = {.model = options_.run.model, .shape = options_.run.shape}};
  const auto device = make_cpu_device({.threads = 1});
  EXPECT_FALSE(evaluate(*device, options, some_tokens()).not_finite.has_value());
  options.init = write_weights("lm_head.weight", std::numeric_limits<float>::infinity());
  EXPECT_EQ(evaluate(*device, options, some_tokens()).not_finite->what, "lm_head.weight");
  options.init = write_weights("lm_head.weight", 3e38F);
  options.logits = folder_ / "logits.safetensors";
  const EvalResult result = evaluate(*device, options, some_tokens());
  EXPECT_FALSE(std::isfinite(result.loss));
  EXPECT_THAT(result.not_finite->what, HasSubstr("the result of "));
}

TEST_F(DivergenceTest, NothingIsGeneratedFromWhatIsNotFinite) {
  GenerateOptions options{.run = {.model = options_.run.model, .shape = {.batch = 1, .context = 8}},
                          .prompt = {1, 2}};
  const auto device = make_cpu_device({.threads = 1});
  const auto sample = [&] { generate(*device, options, nullptr, {}); };
  options.init = write_weights("lm_head.weight", std::nanf(""));
  EXPECT_THAT(message_of(ErrorCode::kNotFinite, sample), HasSubstr("lm_head.weight holds 1 NaN"));
  options.init = write_weights("ln_final.weight", 3e38F);
  EXPECT_THAT(message_of(ErrorCode::kNotFinite, sample), HasSubstr("the vector of logits holds"));
}

// Where many tokens follow one another without the host, it still learns of the first bad one.
TEST_F(DivergenceTest, ABadTokenAmongManyIsNamed) {
  GenerateOptions options{
      .run = {.model = options_.run.model, .shape = {.batch = 1, .context = 24}},
      .prompt = {1, 2},
      .tokens = 20};
  options.sampling.temperature = 0.0;
  testing::FaultingDevice device(make_cpu_device({.threads = 1}),
                                 testing::FaultKind::kNotFiniteResult, kNever);
  std::vector<std::int64_t> shown;
  const std::string message = message_of(ErrorCode::kNotFinite, [&] {
    generate(device, options, nullptr, [&](std::int64_t token) {
      shown.push_back(token);
      if (shown.size() == 8) device.break_after(10);
    });
  });
  EXPECT_THAT(message, HasSubstr("[token 10] a logit was infinite or NaN; computed again"));
  EXPECT_EQ(shown.size(), 8u);
}

TEST(TrainResultTest, ItTakesNoMoreMemoryWithEveryStep) {
  TrainResult result;
  TrainStep step;
  for (int i = 0; i < 3500; ++i) {
    step.step = i + 1;
    step.tokens_per_s = i;
    if (i == 100) step.validation_loss = 2.5;
    if (i == 101) step.validation_loss.reset();
    result.add(step);
  }
  EXPECT_EQ(result.steps, 3500);
  EXPECT_EQ(result.first.step, 1);
  EXPECT_EQ(result.last.step, 3500);
  EXPECT_EQ(result.validation_loss, 2.5);
  std::vector<double> rates = result.recent_rates;
  std::ranges::sort(rates);
  ASSERT_EQ(rates.size(), TrainResult::kRecentSteps);
  EXPECT_EQ(rates.front(), 2500.0);
  EXPECT_EQ(rates.back(), 3499.0);
}

}  // namespace
}  // namespace tracestep
