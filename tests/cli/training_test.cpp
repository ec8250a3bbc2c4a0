// Checks what people expect of a training program: lines that say how it goes, samples on the way,
// a curve at the end, the best weights kept, a recipe, and evaluation in bits per byte.
#include <cmath>
#include <map>
#include <numbers>
#include <sstream>

#include <fcntl.h>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json.h"
#include "cli/chosen_forms.h"
#include "cli/run_binary.h"
#include "cli/training_view.h"
#include "passes/pipeline.h"
#include "spec/parse_words.h"
#include "support/temp_folder.h"
#include "tokens/tokenizer.h"

namespace tracestep {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

const std::string kSizes = " --d-model 16 --d-ff 32 --layers 1 --heads 2 --batch 2 --context 16";

class TrainingTest : public testing::Test {
 protected:
  TrainingTest() {
    std::string text;
    for (int i = 0; i < 200; ++i) text += "the quick brown fox jumps over the lazy dog. ";
    folder_.write("text.txt", text);
  }

  ProgramRun run(const std::string& arguments) const {
    return run_tracestep(words_of(arguments), {.folder = folder_.path()});
  }
  ProgramRun train(const std::string& more) const {
    const ProgramRun out = run("train --text text.txt --lr 0.01" + kSizes + " " + more);
    EXPECT_EQ(out.status, 0) << out.err;
    return out;
  }
  Json row(const ProgramRun& run) const {
    EXPECT_EQ(run.status, 0) << run.err;
    return Json::parse(run.out, "result").at("rows").items()[0];
  }
  std::string file(const std::string& name) const { return content_of(folder_ / name); }
  std::vector<Json> log(const std::string& name) const {
    std::vector<Json> out;
    std::istringstream lines(file(name));
    for (std::string line; std::getline(lines, line);) out.push_back(Json::parse(line, "log"));
    return out;
  }

  TempFolder folder_;
};

std::vector<std::string> lines_with(const std::string& text, std::string_view start) {
  std::vector<std::string> out;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with(start)) out.push_back(line);
  }
  return out;
}

TEST_F(TrainingTest, ALineEveryFewStepsIsOnStderrThoughItIsAPipe) {
  const ProgramRun run = train("--steps 300 --format csv");
  const std::vector<std::string> lines = lines_with(run.err, "step ");
  EXPECT_EQ(lines.size(), 15u) << run.err;
  EXPECT_THAT(lines.back(),
              AllOf(HasSubstr("step 300/300  loss "), HasSubstr("  lr 1.00e-02  "),
                    HasSubstr("norm "), EndsWith(" tokens/s"), Not(HasSubstr("MFU"))));
  EXPECT_THAT(lines.front(), ContainsRegex(" tokens/s  about .* left$"));
  EXPECT_THAT(run.out, Not(HasSubstr("step 300/300")));
}

TEST_F(TrainingTest, TheLossOfALineIsTheMeanOfItsSteps) {
  const ProgramRun run = train("--steps 20 --log log --log-every 8 --validate-every 5");
  const std::vector<std::string> lines = lines_with(run.err, "step ");
  ASSERT_EQ(lines.size(), 3u) << run.err;
  const std::vector<Json> steps = log("log");
  const auto mean = [&](std::size_t from, std::size_t to) {
    double sum = 0;
    for (std::size_t i = from; i < to; ++i) sum += steps[i].at("loss").as_double();
    return fmt::format("loss {:.4f}  validation loss {:.4f}  ",
                       sum / static_cast<double>(to - from),
                       steps[to / 5 * 5 - 1].at("validation_loss").as_double());
  };
  EXPECT_THAT(lines[0], HasSubstr("step 8/20  " + mean(0, 8)));
  EXPECT_THAT(lines[1], HasSubstr("step 16/20  " + mean(8, 16)));
  EXPECT_THAT(lines[2], HasSubstr("step 20/20  " + mean(16, 20)));
}

TEST_F(TrainingTest, WhereNothingWillBeSavedTheFirstLinesSaySo) {
  const std::string words = "will be saved: give --save FILE or --checkpoint DIR";
  const std::string without = train("--steps 2").err;
  EXPECT_LT(without.find("nothing " + words), without.find("step 1/2")) << without;
  EXPECT_THAT(train("--steps 2 --log log").err, HasSubstr("nothing but the log " + words));
  for (const char* kept : {"--save w", "--checkpoint c"}) {
    EXPECT_THAT(train(fmt::format("--steps 2 {}", kept)).err, Not(HasSubstr(words))) << kept;
  }
}

// Validates on the last tenth of the text, which ends with rows and a part of one.
TEST_F(TrainingTest, AValidationIsWhatEvalSaysOfThePartThatIsSetAside) {
  const std::string text = file("text.txt");
  folder_.write("held", text.substr(text.size() - text.size() / 10));
  const std::string common = " --batch 2 --context 16 --format json --text held --init w";
  const auto validated = [&](const std::string& more) {
    const ProgramRun run = train(
        "--steps 3 --validate-every 3 --validation-fraction 0.1 "
        "--save w --format json " +
        more);
    return std::pair(row(run).at("validation_loss").as_double(), run.err);
  };
  const auto [all, said_of_all] = validated("");
  EXPECT_EQ(all, row(run("eval" + common)).at("loss").as_double());
  EXPECT_THAT(said_of_all, HasSubstr("validation on all of 899 tokens held out, every 3 steps; it "
                                     "takes as long as about 9 steps (--validation-batches"));
  const auto [some, said_of_some] = validated("--validation-batches 2");
  EXPECT_EQ(some, row(run("eval --batches 2" + common)).at("loss").as_double());
  EXPECT_NE(some, all);
  EXPECT_THAT(said_of_some, HasSubstr("validation on 64 of 899 tokens held out, every 3 steps; it "
                                      "takes as long as less than a step\n"));
}

TEST_F(TrainingTest, AResumedRunValidatesOnAsManyBatches) {
  train("--steps 2 --validate-every 1 --validation-batches 3 --checkpoint c");
  const ProgramRun same = run("train --checkpoint c --resume --steps 3");
  EXPECT_THAT(same.err, HasSubstr("validation on 96 of 449 tokens"));
  const ProgramRun other = run("train --checkpoint c --resume --steps 4 --validation-batches 4");
  EXPECT_EQ(other.status, 2);
  EXPECT_THAT(other.err, HasSubstr("other validation-batches: 3, now 4"));
}

TEST_F(TrainingTest, WhatIsReadAndLeftOutOfFoldersIsSaidByTrainAndEval) {
  folder_.write("texts/a.txt", file("text.txt"));
  folder_.write("texts/b.txt", "\xff\xfe" + std::string("h\0i\0\n\0", 6));
  folder_.write("texts/c.txt", "caf\xe9\r\n");
  folder_.write("texts/image.png", std::string("\x89PNG\0\0\0\x0d", 8));
  const std::string words =
      "text: 9010 tokens of 3 files, 8.80 KiB; left out: texts/image.png (binary); CRLF line "
      "ends, kept: texts/c.txt; not UTF-8 (Latin-1?), its bytes taken as they are: texts/c.txt; "
      "read as UTF-16: texts/b.txt\n";
  EXPECT_THAT(run("train --text texts --steps 1 --save w" + kSizes).err, HasSubstr(words));
  EXPECT_THAT(run("eval --text texts --init w --batches 1").err, HasSubstr(words));
}

TEST_F(TrainingTest, APromptFromAPipeMayBeUtf16) {
  train("--steps 1 --save w");
  const auto sampled = [&](const std::string& prompt) {
    const std::filesystem::path from = folder_.write("prompt", prompt);
    const ProgramRun out = run_tracestep(
        words_of("generate --init w --prompt - --max-tokens 4 --format json"),
        {.folder = folder_.path(),
         .before_start = [&] { ::dup2(::open(from.c_str(), O_RDONLY), STDIN_FILENO); }});
    return row(out).at("text").as_string();
  };
  EXPECT_EQ(sampled("\xff\xfe" + std::string("h\0i\0", 4)), sampled("hi"));
  EXPECT_EQ(sampled("\xef\xbb\xbfhi"), sampled("hi"));
}

// A step that something held up does not change the rate of all of them.
TEST(TrainingViewTest, TheRateOfALineIsTheMedianOfItsStepsWithoutTheFirstOfTheRun) {
  cli::TrainingView view({.steps = 8, .log_every = 8});
  TrainResult result;
  testing::internal::CaptureStderr();
  for (const double rate : {1.0, 1e5, 1e5, 1e5, 10.0, 1e5, 1e5, 1e5}) {
    const TrainStep step{.step = result.steps + 1, .loss = 1, .tokens_per_s = rate};
    view.add(step);
    result.add(step);
  }
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("100.00 k tokens/s"));
  EXPECT_EQ(result.recent_rates.size(), 7u) << "the first one stands for none";
}

TEST(TrainingViewTest, TheShareOfThePeakIsThatOfTheRate) {
  cli::TrainingView view({.steps = 2, .log_every = 1, .flops_per_token = 2e6, .peak_flops = 1e12});
  testing::internal::CaptureStderr();
  view.add({.step = 1, .loss = 1, .tokens_per_s = 1});
  view.add({.step = 2, .loss = 1, .tokens_per_s = 2e5});  // the first one stands for none
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("200.00 k tokens/s  MFU 40.0 %"));
}

TEST(LossCurveTest, ALongRunKeepsFewPointsAndItsMean) {
  cli::LossCurve curve;
  constexpr std::int64_t kSteps = 100'000;
  for (std::int64_t i = 1; i <= kSteps; ++i) {
    curve.add({.step = i, .loss = static_cast<double>(kSteps - i)});
  }
  const Table table = curve.table();
  EXPECT_LE(table.rows.size(), cli::LossCurve::kMostPoints);
  EXPECT_GT(table.rows.size(), cli::LossCurve::kMostPoints / 4);
  EXPECT_EQ(table.rows.back()[0].as_int(), kSteps);
  EXPECT_THAT(curve.sparkline(8, false), HasSubstr(" #*+=~-._ "));
  EXPECT_THAT(curve.sparkline(8, true), HasSubstr(" █▇▆▅▄▃▂▁ "));
}

TEST_F(TrainingTest, SamplesAreShownAndChangeNoWeight) {
  train("--steps 20 --save without");
  const std::string with = "--steps 20 --save with --sample-every 10 --sample-prompt 'the quick' ";
  const ProgramRun run = train(with);
  const std::vector<std::string> samples = lines_with(run.err, "  ");
  EXPECT_EQ(lines_with(run.err, "sample after step ").size(), 2u) << run.err;
  EXPECT_THAT(run.err, HasSubstr("sample after step 10:\n  the quick"));
  EXPECT_EQ(file("with"), file("without"));
  EXPECT_EQ(lines_with(train(with).err, "  "), samples);
}

TEST_F(TrainingTest, SamplesNeedATokenizerAndAPromptNeedsSamples) {
  folder_.write("tokens.bin", std::string(400, '\1'));
  const std::string tokens = "train --tokens tokens.bin --token-dtype uint16 --vocab 300" + kSizes;
  const ProgramRun unknown = run(tokens + " --sample-every 1");
  EXPECT_EQ(unknown.status, 2);
  EXPECT_THAT(unknown.err, HasSubstr("[--sample-every] no tokenizer is known"));
  EXPECT_EQ(run("train --text text.txt --sample-prompt x" + kSizes).status, 2);
}

TEST_F(TrainingTest, TheCurveOfTheLossIsAPicture) {
  const ProgramRun run = train("--steps 20 --validate-every 10 --pictures pictures");
  EXPECT_THAT(run.err, HasSubstr("a picture is in pictures"));
  const std::string svg = file("pictures/curve-loss.svg");
  EXPECT_THAT(svg, AllOf(testing::StartsWith("<svg"), HasSubstr("validation loss")));
}

// Its last part is another text, so the validation loss rises again while the loss falls.
class BestTest : public TrainingTest {
 protected:
  BestTest() {
    std::string other;
    for (int i = 0; i < 200; ++i) other += static_cast<char>('a' + (i * i * 7 + i / 3) % 26);
    folder_.write("text.txt", file("text.txt") + other);
  }
  std::int64_t best_of(const std::string& name) const {
    std::map<double, std::int64_t> steps;
    for (const Json& step : log(name)) {
      if (const Json* loss = step.find("validation_loss")) {
        steps.emplace(loss->as_double(), step.at("step").as_int());
      }
    }
    return steps.begin()->second;
  }
  const std::string kRun =
      "--validate-every 5 --validation-fraction 0.02 --checkpoint c --log log ";
};

TEST_F(BestTest, TheStepWithTheLowestValidationLossIsKeptForEvalAndGenerate) {
  const ProgramRun run = train(kRun + "--steps 60 --checkpoint-every 10 --format json");
  const std::int64_t best = best_of("log");
  ASSERT_TRUE(best > 3 && best < 40) << best;
  EXPECT_EQ(file("c/best"), fmt::format("step-{:08}\n", best));
  EXPECT_LT(row(run).at("best_validation_loss").as_double(),
            row(run).at("validation_loss").as_double());
  train(fmt::format("--steps {} --validate-every 5 --validation-fraction 0.02 --save w", best));
  const std::string eval = "eval --text text.txt --batch 2 --context 16 --batches 5 --format csv ";
  EXPECT_EQ(this->run(eval + "--init c/best").out, this->run(eval + "--init w").out);
  const ProgramRun text = this->run("generate --init c/best --prompt the --max-tokens 3");
  EXPECT_EQ(text.status, 0) << text.err;
  train("--init c/best --steps 1");
}

TEST_F(BestTest, AResumedRunKnowsTheBestSoFar) {
  train(kRun + "--steps 60");
  const std::int64_t best = best_of("log");
  const std::string named = file("c/best");
  const auto resume = [&](int steps) {
    return row(run(fmt::format("train --checkpoint c --resume --format json --steps {}", steps)));
  };
  EXPECT_GT(resume(75).at("best_validation_loss").as_double(), 0.0);
  EXPECT_EQ(file("c/best"), named);
  EXPECT_EQ(file("c/best"), fmt::format("step-{:08}\n", best));
  // A run that ended before it could name its best one.
  std::filesystem::remove_all(folder_ / "c");
  train(kRun + fmt::format("--steps {} --overwrite", best));
  std::filesystem::remove(folder_ / "c/best");
  resume(60);
  EXPECT_EQ(file("c/best"), named);
  // A run that validates on other tokens has not had a best step yet.
  const std::string other = " --change validation --validation-fraction 0.3";
  EXPECT_TRUE(row(run("train --checkpoint c --resume --format json" + other))
                  .at("best_validation_loss")
                  .is_null());
  // A run that starts anew has a best one of its own.
  train("--steps 1 --checkpoint c --overwrite");
  EXPECT_FALSE(std::filesystem::exists(folder_ / "c/best"));
}

TEST_F(TrainingTest, ARecipeSetsWhatIsNotGivenAndCheckpointsKeepWhatItSet) {
  const ProgramRun run = train("--recipe gpt --steps 40 --clip 0.5 --save w --checkpoint c");
  EXPECT_THAT(run.err, testing::StartsWith("recipe gpt: --schedule cosine --lr-min 0.001 "
                                           "--warmup-steps 2 --weight-decay 0.1 "
                                           "--weight-decay-on matrices\n"));
  train(
      "--steps 40 --clip 0.5 --schedule cosine --lr-min 0.001 --warmup-steps 2 "
      "--weight-decay 0.1 --weight-decay-on matrices --save options");
  EXPECT_EQ(file("w"), file("options"));
  const std::string meta = file("c/step-00000040/meta.json");
  EXPECT_THAT(meta, AllOf(HasSubstr("weight-decay-on"), Not(HasSubstr("\"recipe\""))));
  EXPECT_EQ(this->run("train --checkpoint c --resume").status, 0);
  const ProgramRun other =
      this->run("train --checkpoint c --resume --weight-decay-on all --steps 41");
  EXPECT_EQ(other.status, 2);
  EXPECT_THAT(other.err, HasSubstr("other weight-decay-on: matrices, now all"));
}

TEST_F(TrainingTest, ResumeAloneGoesOnWithTheTextAndTheVocabularyOfTheRun) {
  if (!has_bpe()) GTEST_SKIP() << "this build has no SentencePiece";
  const std::string more =
      "--tokenizer bpe --bpe-vocab 310 --validate-every 5 --seed 3 --order sequential "
      "--accumulate 2 --sample-every 10 --log-every 3 ";
  train(more + "--steps 20 --save whole");
  train(more + "--steps 10 --checkpoint c --save parts");
  const ProgramRun rest = run("train --checkpoint c --resume --steps 20");
  ASSERT_EQ(rest.status, 0) << rest.err;
  EXPECT_THAT(rest.err, AllOf(HasSubstr("step 12/20"), HasSubstr("sample after step 20")));
  EXPECT_EQ(file("parts"), file("whole"));
}

TEST_F(TrainingTest, ResumeAloneWithoutACheckpointSaysSo) {
  const ProgramRun found = run("train --checkpoint mistyped --resume");
  EXPECT_EQ(found.status, 3);
  EXPECT_THAT(found.err, HasSubstr("[mistyped] there is no checkpoint to resume; give --text"));
}

TEST_F(TrainingTest, EvalSaysBitsPerByteInEveryFormat) {
  train("--steps 10 --save w");
  const std::string eval = "eval --init w --text text.txt --batch 2 --context 16 --batches 4 ";
  const Json bytes = row(run(eval + "--format json"));
  EXPECT_EQ(bytes.at("text_bytes").as_int(), 128);
  EXPECT_NEAR(bytes.at("bits_per_byte").as_double(),
              bytes.at("loss").as_double() / std::numbers::ln2, 1e-12);
  EXPECT_THAT(run(eval).out, HasSubstr("bits per byte"));
  for (const char* format : {"csv", "markdown", "latex", "typst"}) {
    const std::string number = std::string(format) == "csv" ? "bits_per_byte" : "bits per byte";
    EXPECT_THAT(run(eval + "--format " + format).out, HasSubstr(number)) << format;
  }
  if (!has_bpe()) return;
  train("--steps 10 --save bpe --tokenizer bpe --bpe-vocab 310");
  const Json pieces =
      row(run("eval --init bpe --text text.txt --batch 1 --context 8 --format json"));
  EXPECT_GT(pieces.at("text_bytes").as_int(), pieces.at("tokens").as_int());
  EXPECT_NEAR(pieces.at("bits_per_byte").as_double() * pieces.at("text_bytes").as_double(),
              pieces.at("loss").as_double() * pieces.at("tokens").as_double() / std::numbers::ln2,
              1e-6);
  // Numbers without a tokenizer have no bytes.
  folder_.write("tokens.bin", std::string(400, '\1'));
  const ProgramRun numbers =
      run("eval --tokens tokens.bin --token-dtype uint16 --vocab 300 --format json" + kSizes);
  EXPECT_TRUE(row(numbers).at("bits_per_byte").is_null());
}

TEST(ChosenFormsTest, TheyDependOnTheDeviceAndTheContext) {
  const auto chosen = [](const char* device, std::int64_t context, const char* ops = "fused",
                         std::int64_t heads = 12) {
    RunSpec run;
    run.model.heads = heads;
    run.place.device = device;
    run.shape.context = context;
    run.ops = parse_granularity("test", ops);
    const cli::Forms forms = cli::choose_forms(run);
    return fmt::format("{} {}", name_of(forms.executor), name_of(forms.attention));
  };
  EXPECT_EQ(chosen("cpu", 128), "eager naive");
  EXPECT_EQ(chosen("cpu", 512), "eager flash");
  EXPECT_EQ(chosen("cpu", 512, "primitive"), "eager naive");
  EXPECT_EQ(chosen("cpu", 512, "fused", 1), "eager naive") << "no tile is as wide as this head";
  EXPECT_EQ(chosen("cuda:1", 128), "compiled flash");
  EXPECT_EQ(chosen("reference", 4096), "eager naive");
}

TEST(ChosenFormsTest, ACheckpointWithoutThemHasThoseOfItsRun) {
  const auto forms =
      cli::forms_of(Json::Object{{"compile_passes", "merge+join"}, {"attention", "flash"}});
  EXPECT_EQ(forms.executor, ExecutorKind::kCompiled);
  EXPECT_EQ(forms.attention, AttentionForm::kFlash);
  const auto older = cli::forms_of(Json::Object{{"compile_passes", "none"}});
  EXPECT_EQ(older.executor, ExecutorKind::kEager);
  EXPECT_EQ(older.attention, AttentionForm::kNaive);
}

TEST_F(TrainingTest, TheFormsThatAreChosenAreSaidKeptAndGivenWayTo) {
  const std::string more = " --context 512 --batch 1 --checkpoint c --steps ";
  const std::string sizes = " --d-model 16 --d-ff 32 --layers 1 --heads 2";
  const std::string long_run = "train --text text.txt" + sizes + more;
  const ProgramRun chosen = run(long_run + "1");
  ASSERT_EQ(chosen.status, 0) << chosen.err;
  EXPECT_THAT(chosen.err, HasSubstr("eager steps, flash attention"));
  EXPECT_THAT(file("c/step-00000001/meta.json"), HasSubstr("\"attention\": [\"flash\"]"));
  const ProgramRun named = run(long_run + "1 --attention naive --overwrite");
  EXPECT_THAT(named.err, HasSubstr("eager steps, naive attention"));
  const ProgramRun rest = run(long_run + "2 --resume");
  EXPECT_EQ(rest.status, 0) << rest.err;
  EXPECT_THAT(rest.err, HasSubstr("eager steps, naive attention"));
  const ProgramRun wide =
      run("train --text text.txt --d-model 512 --d-ff 16 --layers 1 --heads 1 "
          "--context 512 --batch 1 --steps 1");
  EXPECT_EQ(wide.status, 0) << wide.err;
  const ProgramRun eval = run("eval --init c --text text.txt --context 512 --batch 1 --batches 1");
  EXPECT_THAT(eval.err, HasSubstr("eager steps, flash attention"));
}

}  // namespace
}  // namespace tracestep
