// The loss of weights on tokens: each token counts once, however many there are.
#include <cmath>

#include <gtest/gtest.h>

#include "ops/functions.h"
#include "support/backends.h"
#include "support/temp_folder.h"
#include "support/tiny_training.h"
#include "train/evaluate.h"
#include "weights/safetensors.h"

namespace tracestep {
namespace {

EvalOptions options_of(std::int64_t batch, std::int64_t context) {
  const TrainOptions training = testing::tiny_training();
  return {.run = {.model = training.run.model,
                  .shape = {.batch = batch, .context = context},
                  .ops = training.run.ops}};
}

EvalResult result_of(const EvalOptions& options, const TokenSourcePtr& tokens) {
  ops::register_all();
  const auto device = testing::backend_named("cpu").make({.threads = 1});
  return evaluate(*device, options, tokens);
}

TokenSourcePtr tokens_of(int count) {
  std::vector<std::int32_t> tokens;
  for (int i = 0; i < count; ++i) tokens.push_back(i * i * 7 % 23);
  return memory_tokens("tokens", tokens);
}

// Rows of eight tokens and a short one of three: however many rows a batch has.
TEST(EvaluateTest, EveryTokenCountsOnceWhateverTheBatchIs) {
  const TokenSourcePtr tokens = tokens_of(500);
  const EvalResult one = result_of(options_of(1, 8), tokens);
  EXPECT_EQ(one.tokens, 499) << "the last one has none behind it";
  for (const std::int64_t batch : {2, 4, 60, 200}) {
    const EvalResult result = result_of(options_of(batch, 8), tokens);
    EXPECT_EQ(result.tokens, 499) << batch;
    EXPECT_NEAR(result.loss, one.loss, 1e-6) << batch;
    EXPECT_NEAR(result.perplexity, std::exp(result.loss), 1e-9) << batch;
  }
}

// The loss of a text that is shorter than a row is that of its tokens alone, none of them repeated.
TEST(EvaluateTest, AShortTextIsNotReadAgain) {
  const EvalResult whole = result_of(options_of(1, 5), tokens_of(6));
  const EvalResult short_text = result_of(options_of(4, 128), tokens_of(6));
  EXPECT_EQ(short_text.tokens, 5);
  EXPECT_EQ(short_text.batches, 1);
  EXPECT_DOUBLE_EQ(short_text.loss, whole.loss);
  EXPECT_THROW(result_of(options_of(4, 128), tokens_of(1)), Error);
}

TEST(EvaluateTest, BatchesAskedForAreWholeOnes) {
  const TempFolder folder;
  EvalOptions options = options_of(2, 8);
  options.batches = 3;
  options.logits = folder.path() / "l.safetensors";
  const EvalResult result = result_of(options, tokens_of(500));
  EXPECT_EQ(result.batches, 3);
  EXPECT_EQ(result.tokens, 48);
  EXPECT_EQ(SafetensorsFile(options.logits).read("logits").shape, (Shape{2, 8, 23}));
}

}  // namespace
}  // namespace tracestep
