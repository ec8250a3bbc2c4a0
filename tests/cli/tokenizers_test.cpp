// Weights and their tokenizer as a person uses them: trained on a text, they are evaluated, trained
// further and sampled with the tokenizer of that text, wherever they lie.
#include <fcntl.h>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json.h"
#include "base/own_file.h"
#include "cli/run_binary.h"
#include "support/paths.h"
#include "support/temp_folder.h"
#include "tokens/tokenizer.h"
#include "weights/safetensors.h"

namespace tracestep {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

const std::string kShape = " --batch 2 --context 16 --threads 1";
const std::string kSizes = " --d-model 32 --d-ff 64 --layers 1 --heads 2" + kShape;

class TokenizersTest : public ::testing::Test {
 protected:
  TokenizersTest() {
    std::string text;
    for (int i = 0; i < 200; ++i) text += "the quick brown fox jumps over the lazy dog. ";
    folder_.write("text.txt", text);
    std::string tokens;
    for (int i = 0; i < 400; ++i) tokens += std::string{static_cast<char>(i % 50), 0};
    folder_.write("tokens.bin", tokens);
  }

  ProgramRun run(const std::string& arguments, RunHow how = {}) const {
    how.folder = folder_.path();
    return run_tracestep(words_of(arguments), how);
  }
  ProgramRun done(const std::string& arguments) const {
    ProgramRun out = run(arguments);
    EXPECT_EQ(out.status, 0) << arguments << "\n" << out.err;
    return out;
  }
  void expect_refusal(const std::string& arguments, int status, const std::string& part) const {
    const ProgramRun refused = run(arguments);
    EXPECT_EQ(refused.status, status) << arguments << "\n" << refused.err;
    EXPECT_THAT(refused.err, HasSubstr(part)) << arguments;
    EXPECT_EQ(refused.out, "") << arguments;
  }
  // The value of a column in the one row of a result.
  double value(const std::string& arguments, const std::string& column) const {
    const ProgramRun out = done(arguments + " --format json");
    return Json::parse(out.out, arguments).at("rows").items()[0].at(column).as_double();
  }
  double loss_of(const std::string& weights, const std::string& more = "") const {
    return value("eval --text text.txt --batches 4 --init " + weights + kShape + more, "loss");
  }
  // Weights of an older program or of another one, which name no tokenizer.
  void make_weights_of_numbers(const std::string& name, int vocab) const {
    done(fmt::format("train --tokens tokens.bin --token-dtype uint16 --vocab {} --steps 1 "
                     "--save {}",
                     vocab, name) +
         kSizes);
  }
  std::string file(const std::string& name) const { return content_of(folder_ / name); }

  TempFolder folder_;
};

const std::string kTrained =
    "train --text text.txt --steps 30 --lr 0.01 --save w.safetensors --checkpoint c" + kSizes;
const std::string kBpe = " --tokenizer bpe --bpe-vocab 300";

struct Training {
  const char* tokenizer;
  const char* ranks;
};

TEST_F(TokenizersTest, WhatWasTrainedOnATextIsUsedWithTheTokenizerOfThatText) {
  for (const auto& [tokenizer, parallel] :
       {Training{"bytes", "none"}, Training{"bpe --bpe-vocab 300", "none"},
        Training{"bpe --bpe-vocab 300", "dp=2,shard=3"}}) {
    if (!has_bpe() && std::string(tokenizer) != "bytes") continue;
    SCOPED_TRACE(std::string(tokenizer) + " " + parallel);
    fs::remove_all(folder_ / "c");
    const double trained =
        value(kTrained + " --tokenizer " + tokenizer + " --parallel " + parallel, "loss");
    EXPECT_EQ(file("c/step-00000030/tokenizer"), file("w.safetensors.tokenizer"));
    const double expected = loss_of("w.safetensors", " --tokenizer w.safetensors.tokenizer");
    EXPECT_NEAR(expected, trained, 0.7);
    for (const std::string weights : {"w.safetensors", "c"}) {
      EXPECT_EQ(loss_of(weights), expected) << weights;
      // Trained further, it begins where it was, and keeps its tokenizer.
      const std::string more = "train --text text.txt --steps 1 --save more.safetensors --init ";
      EXPECT_NEAR(value(more + weights + kShape, "first_loss"), expected, 0.7) << weights;
      EXPECT_EQ(file("more.safetensors.tokenizer"), file("w.safetensors.tokenizer"));
      for (const std::string& sampled : {weights, std::string("more.safetensors")}) {
        const std::string sample =
            "generate --prompt 'the quick' --max-tokens 12 --temperature 0 --init " + sampled;
        const ProgramRun text = done(sample);
        EXPECT_EQ(text.out, done(sample + " --tokenizer w.safetensors.tokenizer").out) << sampled;
        EXPECT_THAT(text.out, ::testing::MatchesRegex("the quick[a-z .]+\n")) << sampled;
        EXPECT_EQ(text.err, "") << sampled;
      }
    }
  }
}

TEST_F(TokenizersTest, AModelOfNumbersKeepsTheTokenizerThatItsWeightsHad) {
  done(kTrained);
  const std::string more = "train --tokens tokens.bin --token-dtype uint16 --steps 1" + kShape;
  done(more + " --init w.safetensors --save more.safetensors");
  EXPECT_EQ(file("more.safetensors.tokenizer"), file("w.safetensors.tokenizer"));
}

TEST_F(TokenizersTest, ATokenizerThatIsNotThatOfTheWeightsIsSaidAndTaken) {
  if (!has_bpe()) GTEST_SKIP() << "this build has no SentencePiece";
  done(kTrained + kBpe);
  const std::string eval = "eval --text text.txt --batches 1 --init ";
  for (const std::string weights : {"w.safetensors", "c"}) {
    const ProgramRun other = done(eval + weights + " --tokenizer bytes" + kShape);
    EXPECT_THAT(other.err,
                HasSubstr("the one asked for (bytes of 256 entries) is not the one that " +
                          weights + " was trained with"));
    EXPECT_THAT(other.err, HasSubstr("it has 256 entries, the model's vocabulary 300"));
    const ProgramRun own = done(eval + weights + " --tokenizer w.safetensors.tokenizer" + kShape);
    EXPECT_THAT(own.err, Not(HasSubstr("[tokenizer]")));
  }
  // A vocabulary of the same kind and size is told apart as well.
  folder_.write("other.txt", std::string(50, 'z') + " pack my box with five dozen liquor jugs");
  done("train --text other.txt --steps 1 --save other.safetensors" + kBpe + kSizes);
  EXPECT_THAT(done(eval + "w.safetensors --tokenizer other.safetensors.tokenizer" + kShape).err,
              HasSubstr("is not the one that w.safetensors was trained with"));
}

TEST_F(TokenizersTest, ATokenizerLargerThanTheVocabularyIsRefused) {
  if (!has_bpe()) GTEST_SKIP() << "this build has no SentencePiece";
  done(kTrained);
  done("train --text text.txt --steps 1 --save large.safetensors" + kBpe + kSizes);
  const std::string large = " --init w.safetensors --tokenizer large.safetensors.tokenizer";
  const std::string sizes = "[--tokenizer] it has 300 entries, the model's vocabulary 256";
  expect_refusal("eval --text text.txt" + large + kShape, 2, sizes);
  expect_refusal("train --text text.txt --steps 1" + large + kShape, 2, sizes);
  expect_refusal("generate --prompt a" + large, 2, sizes);
  expect_refusal("train --text text.txt --vocab 256 --steps 1" + kBpe + kSizes, 2, sizes);
}

TEST_F(TokenizersTest, ThatOfAPublishedModelGoesWithTheWeightsAsItIs) {
  const fs::path golden = testing::source_folder() / "tests/golden/tokenizers";
  const std::string json = content_of(golden / "qwen2.json");
  fs::create_directory(folder_ / "published");
  folder_.write("published/tokenizer.json", json);
  const std::string training =
      "train --text text.txt --tokenizer published --steps 2 --save w.safetensors --checkpoint c" +
      kSizes;
  done(training);
  EXPECT_EQ(file("w.safetensors.tokenizer"), json);
  EXPECT_EQ(file("c/step-00000002/tokenizer.json"), json);
  for (const char* weights : {"w.safetensors", "c"}) {
    const std::string init = fmt::format(" --init {}", weights);
    EXPECT_THAT(done("eval --text text.txt --batches 1" + init + kShape).err,
                Not(HasSubstr("[tokenizer]")));
    EXPECT_THAT(done("generate --prompt 'the quick' --max-tokens 4" + init).out,
                HasSubstr("the quick"));
  }
  done("train --checkpoint c --resume --steps 3");
  // The file has no mark of this program: only an equal one is replaced.
  fs::remove_all(folder_ / "c");
  done(training);
  folder_.write("w.safetensors.tokenizer", content_of(golden / "gpt2.json"));
  fs::remove_all(folder_ / "c");
  expect_refusal(training, 5, "w.safetensors.tokenizer would be replaced, and tracestep did not");
  folder_.write("published/tokenizer.json", R"({"model": {"type": "Unigram"}})");
  expect_refusal("eval --text text.txt --tokenizer published --init w.safetensors" + kShape, 3,
                 "published/tokenizer.json: model: models of type Unigram are not known here");
}

TEST_F(TokenizersTest, WhatATemplateSetsBeforeATextGoesBeforeAPromptAndIsNotShown) {
  const fs::path golden = testing::source_folder() / "tests/golden/tokenizers/llama2.json";
  const ProgramRun training = done(
      "train --text text.txt --steps 2 --save w.safetensors --sample-every 2 --sample-prompt "
      "'the quick' --tokenizer " +
      golden.string() + kSizes);
  EXPECT_THAT(training.err, HasSubstr("sample after step 2:\n  the quick"));
  const std::string sample = "generate --init w.safetensors --max-tokens 4 --temperature 0 ";
  const std::string text = done(sample + "--prompt 'the quick'").out;
  EXPECT_EQ(text.find("the quick"), 0u) << text;
  std::string numbers = "1";
  const auto tokens = load_tokenizer(golden)->encode("the quick");
  for (const std::int32_t id : tokens) numbers += fmt::format(",{}", id);
  EXPECT_EQ(done(sample + "--prompt-tokens " + numbers).out, text);
  EXPECT_EQ(value(sample + "--prompt 'the quick'", "prompt_tokens"),
            static_cast<double>(1 + tokens.size()));
}

TEST_F(TokenizersTest, TokensWithoutATextAreShownAsSuch) {
  make_weights_of_numbers("w.safetensors", 400);
  const ProgramRun text = done(
      "generate --init w.safetensors --tokenizer bytes --prompt a --max-tokens 40 "
      "--temperature 9 --seed 3");
  EXPECT_THAT(text.err, HasSubstr("it has 256 entries, the model's vocabulary 400"));
  EXPECT_THAT(text.out, HasSubstr("\uFFFD"));
}

TEST_F(TokenizersTest, WithoutATokenizerBytesAreTakenOnlyForAVocabularyOfBytes) {
  make_weights_of_numbers("w.safetensors", 256);
  const ProgramRun bytes = done("eval --text text.txt --batches 1 --init w.safetensors" + kShape);
  EXPECT_THAT(bytes.err, HasSubstr("[tokenizer] w.safetensors has none: taking bytes, as its "
                                   "vocabulary is 256"));
  make_weights_of_numbers("other.safetensors", 300);
  const std::string unknown =
      "[--tokenizer] there is no other.safetensors.tokenizer, and the vocabulary of "
      "other.safetensors is 300, that of bytes 256; give the tokenizer's file by --tokenizer";
  expect_refusal("eval --text text.txt --init other.safetensors" + kShape, 2, unknown);
  expect_refusal("train --text text.txt --steps 1 --init other.safetensors" + kShape, 2, unknown);
  expect_refusal("generate --prompt a --init other.safetensors", 2, unknown);
  // Numbers need none.
  EXPECT_EQ(done("generate --prompt-tokens 1,2 --max-tokens 1 --init other.safetensors").err, "");
  done("eval --tokens tokens.bin --token-dtype uint16 --init other.safetensors" + kShape);
}

TEST_F(TokenizersTest, WeightsKnowTheirTokenizerWhereAnotherTookItsPlace) {
  if (!has_bpe()) GTEST_SKIP() << "this build has no SentencePiece";
  done(kTrained + kBpe);
  const std::string eval = "eval --text text.txt --batches 1 --init w.safetensors" + kShape;
  const std::string own = file("w.safetensors.tokenizer");
  byte_tokenizer()->save(folder_ / "w.safetensors.tokenizer");
  expect_refusal(eval, 3, "w.safetensors.tokenizer is not the tokenizer that w.safetensors was");
  fs::remove(folder_ / "w.safetensors.tokenizer");
  expect_refusal(eval, 2, "w.safetensors was not trained on bytes");
  folder_.write("elsewhere", own);
  EXPECT_THAT(done(eval + " --tokenizer elsewhere").err, Not(HasSubstr("[tokenizer]")));
}

// Their files end without the mark of this program, and their weights name no tokenizer.
TEST_F(TokenizersTest, TheTokenizerOfAnEarlierVersionIsThatOfItsWeights) {
  if (!has_bpe()) GTEST_SKIP() << "this build has no SentencePiece";
  done(kTrained + kBpe);
  const SafetensorsFile weights(folder_ / "w.safetensors");
  std::map<std::string, HostTensor> tensors;
  for (const std::string& name : weights.names()) tensors[name] = weights.read(name);
  write_safetensors(folder_ / "old.safetensors", {tensors.begin(), tensors.end()},
                    {{"heads", "2"}});
  const std::string marked = file("w.safetensors.tokenizer");
  folder_.write("old.safetensors.tokenizer", marked.substr(0, marked.find(kTokenizerMark) - 3));
  EXPECT_EQ(loss_of("old.safetensors"), loss_of("w.safetensors"));
  const std::string eval = "eval --text text.txt --batches 1 --init old.safetensors" + kShape;
  for (const char* own : {"old", "w"}) {
    EXPECT_THAT(done(fmt::format("{} --tokenizer {}.safetensors.tokenizer", eval, own)).err,
                Not(HasSubstr("[tokenizer]")));
  }
  // A damaged tokenizer does not keep another from being taken.
  folder_.write("old.safetensors.tokenizer", "no tokenizer");
  expect_refusal(eval, 3, "old.safetensors.tokenizer is no tokenizer file");
  EXPECT_THAT(done(eval + " --tokenizer w.safetensors.tokenizer").err,
              HasSubstr("is not the one that old.safetensors was trained with"));
}

TEST_F(TokenizersTest, ACheckpointOfAnEarlierVersionIsReadAndSaysThatItHasNoTokenizer) {
  fs::copy(testing::source_folder() / "tests/cli/checkpoint_1", folder_ / "earlier",
           fs::copy_options::recursive);
  const std::string init = " --init earlier --batch 2 --context 4";
  done("eval --tokens earlier/tokens.bin --token-dtype uint16" + init);
  expect_refusal(
      "eval --text text.txt" + init, 2,
      "there is no earlier/step-00000004/tokenizer, and the vocabulary of earlier is 16");
}

TEST_F(TokenizersTest, ADamagedTokenizerIsDamageOfItsCheckpoint) {
  done(kTrained + " --checkpoint-every 15");
  folder_.write("c/step-00000030/tokenizer", "tracestep byte tokenizer 2\n");
  const ProgramRun before = done("generate --init c --prompt the --max-tokens 1");
  EXPECT_THAT(before.err, HasSubstr("step-00000030 is damaged: c/step-00000030/tokenizer does not "
                                    "match its checksum"));
  const double from = value("train --checkpoint c --resume --steps 16", "resumed_from");
  EXPECT_EQ(from, 15);
  for (const char* step : {"15", "16"}) {
    folder_.write(fmt::format("c/step-000000{}/tokenizer", step), "");
  }
  expect_refusal("generate --init c --prompt the", 3, "tokenizer does not match its checksum");
}

TEST_F(TokenizersTest, AResumedRunNeedsNoOptionButItsFolder) {
  const std::string training =
      "train --text text.txt --lr 0.01 --clip 1 --schedule cosine --validate-every 4 "
      "--validation-fraction 0.2 --moments bf16" +
      kSizes + (has_bpe() ? kBpe : "");
  done(training + " --steps 12 --save whole.safetensors");
  done(
      training +
      " --steps 12 --checkpoint run --checkpoint-every 6 --save parts.safetensors --log log.jsonl");
  // As if it had been killed in step 10, behind the best validation so far.
  fs::remove_all(folder_ / "run/step-00000012");
  fs::remove(folder_ / "parts.safetensors");
  folder_.write("run/latest", "step-00000008\n");
  const ProgramRun rest = done("train --checkpoint run --resume");
  EXPECT_THAT(rest.err, AllOf(HasSubstr("[resume] from run/step-00000008: --text /"),
                              HasSubstr("/text.txt ")));
  EXPECT_EQ(file("parts.safetensors"), file("whole.safetensors"));
  EXPECT_EQ(std::ranges::count(file("log.jsonl"), '\n'), 12);
  // An option that is given anew holds, and is kept in turn.
  done("train --checkpoint run --resume --steps 13 --lr 0.02 --change steps,lr");
}

TEST_F(TokenizersTest, AResumedRunKeepsTheValidationThatIsNotGivenAnew) {
  done("train --text text.txt --steps 2 --validate-every 1 --checkpoint c" + kSizes);
  const std::string resumed = "train --text text.txt --resume --checkpoint c --steps 3" + kSizes;
  EXPECT_GT(value(resumed, "validation_loss"), 0);
  expect_refusal(resumed + " --validate-every 0", 2, "other validation: ");
  const ProgramRun without = done(resumed + " --validate-every 0 --change validation,text");
  EXPECT_THAT(without.err, HasSubstr("validation changes after step 3"));
}

TEST_F(TokenizersTest, OtherTokensTakeThePlaceOfThoseOfTheCheckpoint) {
  done("train --tokens tokens.bin --token-dtype uint16 --vocab 256 --steps 1 --checkpoint c" +
       kSizes);
  const ProgramRun other = done(
      "train --text text.txt --checkpoint c --resume --steps 2 "
      "--change text");
  EXPECT_THAT(other.err, Not(HasSubstr("tokens.bin")));
}

TEST_F(TokenizersTest, AFileThatIsNoWeightsIsNotReplacedByThem) {
  const std::string text = file("text.txt");
  folder_.write("notes.txt", text);
  expect_refusal("train --text text.txt --steps 1 --save notes.txt" + kSizes, 5,
                 "[--save] notes.txt would be replaced, and tracestep did not write it");
  EXPECT_EQ(file("notes.txt"), text);
}

TEST_F(TokenizersTest, APromptIsReadFromStdin) {
  done(kTrained);
  const std::string sample = "generate --init w.safetensors --max-tokens 6 --temperature 0 ";
  folder_.write("prompt", "the quick\n");
  const auto with_stdin = [&](const char* name) {
    return run(sample + "--prompt -", {.before_start = [name] {
                 const int fd = ::open(name, O_RDONLY);
                 if (fd < 0 || ::dup2(fd, STDIN_FILENO) < 0) ::_exit(126);
               }});
  };
  EXPECT_EQ(with_stdin("prompt").out, done(sample + "--prompt 'the quick'").out);
  const ProgramRun empty = with_stdin("/dev/null");
  EXPECT_EQ(empty.status, 3);
  EXPECT_THAT(empty.err, HasSubstr("[--prompt] stdin is empty"));
}

}  // namespace
}  // namespace tracestep
