// Checkpoints of train as a person meets them: links, damage, changed options, folders in use.
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <fstream>

#include <gtest/gtest.h>

#include "base/json.h"
#include "cli/run_binary.h"
#include "support/paths.h"
#include "support/temp_folder.h"

namespace tracestep {
namespace {

namespace fs = std::filesystem;

class ResumeTest : public ::testing::Test {
 protected:
  ResumeTest() {
    fs::copy(testing::source_folder() / "tests/cli/checkpoint_1", folder_ / "earlier",
             fs::copy_options::recursive);
    fs::rename(folder_ / "earlier/tokens.bin", folder_ / "tokens.bin");
  }

  // A tiny model, with checkpoints in the folder c.
  ProgramRun train(const std::string& more, RunHow how = {}) const {
    return train_at("--lr 0.01 --checkpoint c " + more, std::move(how));
  }
  ProgramRun train_at(const std::string& more, RunHow how = {}) const {
    how.folder = folder_.path();
    return run_tracestep(
        words_of("train --tokens tokens.bin --token-dtype uint16 --vocab 16 --d-model 8 --d-ff 8 "
                 "--layers 1 --heads 2 --batch 2 --context 4 --format json " +
                 more),
        how);
  }
  std::string file(const std::string& name) const { return content_of(folder_ / name); }
  void flip_last_byte(const std::string& name) const {
    std::string content = file(name);
    content.back() ^= 1;
    folder_.write(name, content);
  }
  // The weights of `steps` steps in one go.
  std::string uninterrupted(int steps) const {
    const ProgramRun whole =
        train_at(fmt::format("--lr 0.01 --steps {} --save whole.safetensors", steps));
    EXPECT_EQ(whole.status, 0) << whole.err;
    return file("whole.safetensors");
  }
  static std::int64_t resumed_from(const ProgramRun& run) {
    return Json::parse(run.out, "train").at("rows").items()[0].at("resumed_from").as_int();
  }

  TempFolder folder_;
};

TEST_F(ResumeTest, AFolderOfLinksReachesNoFileOutside) {
  ASSERT_EQ(train("--steps 4 --checkpoint-every 2").status, 0);
  folder_.write("victim", "precious");
  folder_.write("folder/file", "precious");
  fs::remove(folder_ / "c/latest");
  fs::create_symlink("../victim", folder_ / "c/latest");
  for (const char* name : {".tmp-step-00000005", ".tmp-step-00000002", ".old-step-00000005"}) {
    fs::create_directory_symlink("../folder", folder_ / "c" / name);
  }
  const ProgramRun run = train("--steps 5 --resume --save w.safetensors");
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_TRUE(contains(run.err, "latest is a symbolic link"));
  EXPECT_EQ(file("victim"), "precious");
  EXPECT_EQ(file("folder/file"), "precious");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_ / "folder"), {}), 1);
  EXPECT_EQ(file("c/latest"), "step-00000005\n");
  EXPECT_EQ(file("w.safetensors"), uninterrupted(5));
}

TEST_F(ResumeTest, ACheckpointThatIsALinkElsewhereIsNotTouched) {
  ASSERT_EQ(train("--steps 2 --checkpoint-every 1").status, 0);
  fs::rename(folder_ / "c/step-00000002", folder_ / "elsewhere");
  fs::create_directory_symlink("../elsewhere", folder_ / "c/step-00000002");
  const std::string meta = file("elsewhere/meta.json");
  const ProgramRun run = train("--steps 2 --resume --save w.safetensors");
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_EQ(resumed_from(run), 1);
  EXPECT_TRUE(contains(run.err, "step-00000002 is a symbolic link"));
  EXPECT_FALSE(fs::is_symlink(folder_ / "c/step-00000002"));
  EXPECT_EQ(file("elsewhere/meta.json"), meta);
  EXPECT_EQ(file("w.safetensors"), uninterrupted(2));
}

TEST_F(ResumeTest, ADamagedCheckpointIsSaidAndDoesNotPushOutAGoodOne) {
  ASSERT_EQ(train("--steps 4 --checkpoint-every 2").status, 0);
  flip_last_byte("c/step-00000004/model.safetensors");
  const ProgramRun run = train("--steps 5 --checkpoint-every 5 --resume --save w.safetensors");
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_EQ(resumed_from(run), 2);
  EXPECT_TRUE(contains(run.err, "warning: [checkpoint] step-00000004 is damaged: "));
  EXPECT_EQ(file("w.safetensors"), uninterrupted(5));
  // The newest is damaged as well: the good one before is still there.
  flip_last_byte("c/step-00000005/state.safetensors");
  const ProgramRun again = train("--steps 5 --resume --save w.safetensors");
  EXPECT_EQ(again.status, 0) << again.err;
  EXPECT_EQ(resumed_from(again), 2);
  EXPECT_EQ(file("w.safetensors"), uninterrupted(5));
}

TEST_F(ResumeTest, ADamagedCheckpointAloneIsAnError) {
  ASSERT_EQ(train("--steps 2").status, 0);
  flip_last_byte("c/step-00000002/model.safetensors");
  const ProgramRun run = train("--steps 3 --resume");
  EXPECT_EQ(run.status, 3);
  EXPECT_TRUE(contains(run.err, "model.safetensors does not match its checksum"));
}

TEST_F(ResumeTest, AnotherTextOfTheSameLengthIsAnotherRun) {
  ASSERT_EQ(train("--steps 2").status, 0);
  std::string tokens = file("tokens.bin");
  tokens[100] ^= 1;
  folder_.write("tokens.bin", tokens);
  const ProgramRun refused = train("--steps 3 --resume");
  EXPECT_EQ(refused.status, 2);
  EXPECT_TRUE(contains(refused.err, "other text, tokens or tokenizer: 120 tokens with"));
  const ProgramRun taken = train("--steps 3 --resume --change text");
  EXPECT_EQ(taken.status, 0) << taken.err;
  EXPECT_EQ(resumed_from(taken), 2);
}

TEST_F(ResumeTest, AChangedOptionIsRefusedOrTakenAndRecorded) {
  ASSERT_EQ(train("--steps 2").status, 0);
  for (const char* change : {"--clip 1", "--weight-decay 0.1", "--schedule cosine",
                             "--warmup-steps 3", "--attention flash", "--ops primitive"}) {
    const ProgramRun refused = train(std::string("--steps 3 --resume ") + change);
    EXPECT_EQ(refused.status, 2) << change;
    const std::string name(change + 2, std::string_view(change).find(' ') - 2);
    EXPECT_TRUE(contains(refused.err, "the checkpoint was trained with other " + name + ": "));
  }
  const std::string faster = "--lr 0.02 --checkpoint c --resume ";
  const ProgramRun refused = train_at(faster + "--steps 3");
  EXPECT_EQ(refused.status, 2);
  EXPECT_TRUE(contains(refused.err,
                       "other lr: 0.01, now 0.02; use the same options, or go on "
                       "with these by --change lr"));
  const ProgramRun taken = train_at(faster + "--steps 3 --change lr");
  EXPECT_EQ(taken.status, 0) << taken.err;
  EXPECT_TRUE(contains(taken.err, "warning: [resume] lr changes after step 2: 0.01, now 0.02"));
  const ProgramRun rest = train_at(faster + "--steps 4");
  EXPECT_EQ(rest.status, 0) << rest.err;
  const Json meta = Json::parse(file("c/step-00000004/meta.json"), "meta").at("meta");
  ASSERT_EQ(meta.at("changes").size(), 1u);
  EXPECT_EQ(meta.at("changes").items()[0].dump(),
            R"({"after_step":2,"option":"lr","before":0.01,"now":0.02})");
}

TEST_F(ResumeTest, AnotherDeviceIsAnotherRun) {
  ASSERT_EQ(train("--steps 1").status, 0);
  const ProgramRun refused = train("--steps 2 --resume --device reference");
  EXPECT_EQ(refused.status, 2);
  EXPECT_TRUE(contains(refused.err, "other device: cpu, now reference"));
  EXPECT_EQ(train("--steps 2 --resume --threads 1").status, 0) << "threads change no bits";
}

TEST_F(ResumeTest, FlagsThatDoNotGoTogetherAreRefused) {
  const auto refused = [&](const std::string& more, const char* part) {
    const ProgramRun run = train_at(more);
    EXPECT_EQ(run.status, 2) << more;
    EXPECT_TRUE(contains(run.err, part));
  };
  refused("--checkpoint c --resume --change lrr",
          "[--change] there is no \"lrr\"; did you mean lr");
  refused("--checkpoint c --resume --change model", "[--change] model cannot change");
  refused("--checkpoint c --change lr", "[--change] it needs --resume");
  refused("--checkpoint c --overwrite --resume", "[--overwrite] it starts anew");
}

TEST_F(ResumeTest, AFolderInUseNeedsAWordAboutIt) {
  ASSERT_EQ(train("--steps 4 --checkpoint-every 2").status, 0);
  const std::string meta = file("c/step-00000004/meta.json");
  const ProgramRun refused = train("--steps 3");
  EXPECT_EQ(refused.status, 2);
  EXPECT_TRUE(contains(refused.err,
                       "[--checkpoint] c holds checkpoints of an earlier run, "
                       "step-00000004 the newest"));
  // A run that fails before its first checkpoint has removed nothing.
  const ProgramRun failed = train("--steps 3 --overwrite --memory-limit 1KiB");
  EXPECT_EQ(failed.status, 4) << failed.err;
  EXPECT_EQ(file("c/step-00000004/meta.json"), meta);
  EXPECT_EQ(file("c/latest"), "step-00000004\n");
  const ProgramRun anew = train("--steps 3 --overwrite");
  EXPECT_EQ(anew.status, 0) << anew.err;
  EXPECT_EQ(resumed_from(anew), 0);
  EXPECT_FALSE(fs::exists(folder_ / "c/step-00000004"));
  EXPECT_FALSE(fs::exists(folder_ / "c/step-00000002"));
  EXPECT_EQ(file("c/latest"), "step-00000003\n");
}

TEST_F(ResumeTest, ACheckpointOfTheVersionBeforeIsContinued) {
  const ProgramRun run = train_at("--lr 0.01 --checkpoint earlier --resume --steps 6");
  ASSERT_EQ(run.status, 0) << run.err;
  EXPECT_EQ(resumed_from(run), 4);
  const Json row = Json::parse(run.out, "train").at("rows").items()[0];
  EXPECT_NEAR(row.at("first_loss").as_double(), 3.2175, 2e-4) << "what that version went on with";
  EXPECT_NEAR(row.at("loss").as_double(), 2.7739, 2e-4);
  EXPECT_TRUE(contains(run.err, "not recorded by the version that wrote the checkpoint"));
  EXPECT_TRUE(contains(file("earlier/step-00000006/meta.json"), "tracestep.checkpoint/2"));
  const ProgramRun rest = train_at("--lr 0.01 --checkpoint earlier --resume --steps 7");
  EXPECT_EQ(rest.status, 0) << rest.err;
  EXPECT_EQ(rest.err.find("not recorded"), std::string::npos) << "said once: " << rest.err;
  folder_.write("earlier/latest", "step-00000004\n");
  EXPECT_EQ(train_at("--lr 0.01 --checkpoint earlier --resume --steps 7 --batch 3").status, 2);
}

TEST_F(ResumeTest, AFileThatGrowsTooLargeIsAnErrorAndTheCheckpointBeforeStays) {
  ASSERT_EQ(train("--steps 1").status, 0);
  const std::string meta = file("c/step-00000001/meta.json");
  const ProgramRun full = train("--steps 2 --resume", {.before_start = [] {
                                  std::signal(SIGXFSZ, SIG_IGN);
                                  const rlimit small{4096, 4096};
                                  ::setrlimit(RLIMIT_FSIZE, &small);
                                }});
  EXPECT_EQ(full.status, 5);
  EXPECT_TRUE(contains(full.err, "state.safetensors cannot be written: File too large"));
  EXPECT_EQ(file("c/step-00000001/meta.json"), meta);
  const ProgramRun rest = train("--steps 2 --resume --save w.safetensors");
  EXPECT_EQ(rest.status, 0) << rest.err;
  EXPECT_EQ(file("w.safetensors"), uninterrupted(2));
}

TEST_F(ResumeTest, LeftoversOfAProcessOfTheSameNumberDoNotBlock) {
  const ProgramRun run =
      train("--steps 1 --save w.safetensors --log log.jsonl", {.before_start = [] {
              for (int i = 0; i < 100; ++i) {
                const auto name = fmt::format(".tracestep-{}-{}.tmp", ::getpid(), i);
                std::ofstream(name) << "of an earlier container";
              }
            }});
  EXPECT_EQ(run.status, 0) << run.err;
}

TEST_F(ResumeTest, TokensOfValidationAreCheckedAsWell) {
  std::string tokens = file("tokens.bin");
  tokens[tokens.size() - 2] = 99;
  folder_.write("tokens.bin", tokens);
  const ProgramRun run = train("--steps 1 --validate-every 1");
  EXPECT_EQ(run.status, 3);
  EXPECT_TRUE(contains(run.err, "token 99"));
}

// `… 2>&1 | tee log`, when Ctrl-C ends tee as well.
TEST_F(ResumeTest, ASignalSavesACheckpointThoughNobodyReadsTheMessages) {
  for (int number : {SIGINT, SIGTERM, SIGHUP}) {
    const ProgramRun run = train_at(fmt::format("--steps 100000000 --checkpoint p{}", number),
                                    {.while_running = [=](pid_t child) { ::kill(child, number); },
                                     .delay_ms = 700,
                                     .before_start =
                                         [] {
                                           int ends[2];
                                           if (::pipe(ends) != 0) ::_exit(125);
                                           ::dup2(ends[1], STDERR_FILENO);
                                           ::close(ends[0]);
                                         }});
    EXPECT_EQ(run.status, 128 + number);
    EXPECT_TRUE(fs::exists(folder_ / fmt::format("p{}/latest", number)));
  }
}

TEST_F(ResumeTest, ALogThatCannotBeWrittenLosesNoStep) {
  const ProgramRun full = train("--steps 100000000 --log log.jsonl", {.before_start = [] {
                                  const rlimit small{65536, 65536};
                                  ::setrlimit(RLIMIT_FSIZE, &small);
                                }});
  EXPECT_EQ(full.status, 5) << full.err;
  EXPECT_TRUE(contains(full.err, "the steps up to the error are saved")) << full.err;
  const std::string log = file("log.jsonl");
  const auto lines = std::count(log.begin(), log.end(), '\n');
  EXPECT_GE(std::stoll(file("c/latest").substr(5)), lines);
}

TEST_F(ResumeTest, TokensThatChangeDuringTheRunEndItWithTheStepsDoneSaved) {
  const ProgramRun run =
      train("--steps 100000000", {.while_running =
                                      [this](pid_t) {
                                        std::string tokens = file("tokens.bin");
                                        std::ranges::fill(tokens, '\x7f');
                                        std::fstream out(folder_ / "tokens.bin",
                                                         std::ios::in | std::ios::out);
                                        out << tokens;
                                      },
                                  .delay_ms = 700});
  EXPECT_EQ(run.status, 3) << run.err;
  EXPECT_TRUE(contains(run.err, "though none was before the first step"));
  EXPECT_TRUE(fs::exists(folder_ / "c/latest"));
}

TEST_F(ResumeTest, AFileThatIsNoLogIsNotOverwritten) {
  folder_.write("notes.txt", "my notes\n");
  EXPECT_EQ(train("--steps 1 --log notes.txt").status, 5);
  EXPECT_EQ(file("notes.txt"), "my notes\n");
  ASSERT_EQ(train("--steps 3 --log log.jsonl").status, 0);
  folder_.write("log.jsonl", file("log.jsonl") + "my note\n" + file("log.jsonl"));
  const std::string before = file("log.jsonl");
  EXPECT_EQ(train("--steps 9 --resume --log log.jsonl").status, 3);
  EXPECT_EQ(file("log.jsonl"), before);
}

TEST_F(ResumeTest, ALogThatEndsBeforeTheCheckpointIsNamed) {
  ASSERT_EQ(train("--steps 4 --log log.jsonl").status, 0);
  const std::string log = file("log.jsonl");
  folder_.write("log.jsonl", log.substr(0, log.find('\n') + 1));
  const ProgramRun run = train("--steps 5 --resume --log log.jsonl");
  EXPECT_EQ(run.status, 0);
  EXPECT_TRUE(contains(run.err, "ends with step 1, the checkpoint is step 4")) << run.err;
}

TEST_F(ResumeTest, AnotherNumberOfHeadsThanThatOfTheWeightsIsRefused) {
  ASSERT_EQ(train("--steps 1 --save w.safetensors").status, 0);
  const std::string eval =
      "eval --tokens tokens.bin --token-dtype uint16 --batch 2 --context 4 "
      "--init w.safetensors";
  const RunHow here{.folder = folder_.path()};
  EXPECT_EQ(run_tracestep(words_of(eval), here).status, 0);
  EXPECT_EQ(run_tracestep(words_of(eval + " --heads 2"), here).status, 0);
  EXPECT_EQ(run_tracestep(words_of(eval + " --heads 1"), here).status, 2);
  const ProgramRun sizes =
      run_tracestep(words_of(eval + " --vocab 16 --d-model 8 --d-ff 8 --layers 1 --heads 4"), here);
  EXPECT_EQ(sizes.status, 2);
  EXPECT_TRUE(contains(sizes.err, "w.safetensors, which is 2")) << sizes.err;
}

TEST_F(ResumeTest, TheNumberOfHeadsInAFolderOfCheckpointsIsThatOfItsRun) {
  ASSERT_EQ(train("--steps 1").status, 0);
  const RunHow here{.folder = folder_.path()};
  const std::string eval =
      "eval --tokens tokens.bin --token-dtype uint16 --batch 2 --context 4 --format csv --init ";
  const ProgramRun folder = run_tracestep(words_of(eval + "c"), here);
  EXPECT_EQ(folder.status, 0) << folder.err;
  EXPECT_EQ(run_tracestep(words_of(eval + "c --heads 1"), here).status, 2);
  const ProgramRun sizes = run_tracestep(
      words_of(eval + "c --vocab 16 --d-model 8 --d-ff 8 --layers 1 --heads 4"), here);
  EXPECT_EQ(sizes.status, 2);
  EXPECT_TRUE(contains(sizes.err, "number of heads in c, which is 2")) << sizes.err;
}

TEST_F(ResumeTest, ARunThatBeganWithAnotherOnesCheckpointIsContinuedWhenThatHasANewerOne) {
  ASSERT_EQ(train("--steps 2").status, 0);
  const std::string more = "--lr 0.01 --init c --checkpoint d --steps ";
  ASSERT_EQ(train_at(more + "4 --save whole.safetensors --overwrite").status, 0);
  ASSERT_EQ(train_at(more + "2 --overwrite").status, 0);
  ASSERT_EQ(train("--steps 3 --resume").status, 0);
  const ProgramRun run = train_at(more + "4 --resume --save w.safetensors");
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_EQ(resumed_from(run), 2);
  EXPECT_TRUE(contains(run.err, "weights come from d/step-00000002, not from")) << run.err;
  EXPECT_EQ(file("w.safetensors"), file("whole.safetensors"));
}

TEST_F(ResumeTest, ARunThatTakesThePlaceOfTheOneItBeganWithIsContinued) {
  ASSERT_EQ(train("--steps 2").status, 0);
  ASSERT_EQ(train("--steps 3 --init c --overwrite").status, 0);
  for (const char* more : {"--steps 4 --resume --init c", "--steps 5 --resume"}) {
    const ProgramRun run = train(more);
    EXPECT_EQ(run.status, 0) << run.err;
  }
}

TEST_F(ResumeTest, APrecisionThatScalesTheLossCanBeChangedTo) {
  ASSERT_EQ(train("--steps 2").status, 0);
  const ProgramRun run = train("--steps 4 --resume --precision fp16 --change precision");
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_EQ(train("--steps 5 --resume --precision fp16 --init x --change init").status, 2);
}

TEST_F(ResumeTest, ATokenizerOfOtherWeightsIsNotLeftBesideNewOnes) {
  folder_.write("w.safetensors.tokenizer", "of a text");
  EXPECT_EQ(train("--steps 1 --save w.safetensors").status, 2);
  EXPECT_FALSE(fs::exists(folder_ / "w.safetensors"));
}

TEST_F(ResumeTest, ALaterCheckpointThanLatestIsNamedAsDoubtful) {
  ASSERT_EQ(train("--steps 4 --checkpoint-every 4").status, 0);
  fs::copy(folder_ / "c", folder_ / "other", fs::copy_options::recursive);
  ASSERT_EQ(train_at("--lr 0.01 --checkpoint other --resume --steps 6").status, 0);
  fs::copy(folder_ / "other/step-00000006", folder_ / "c/step-00000006");
  flip_last_byte("c/step-00000004/model.safetensors");
  const ProgramRun run = train("--steps 7 --resume");
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_TRUE(contains(run.err, "it may be another run's")) << run.err;
}

TEST_F(ResumeTest, NoOutputMayBeAnInputOrAnotherOutput) {
  ASSERT_EQ(train("--steps 1 --save w.safetensors").status, 0);
  const std::string tokens = file("tokens.bin"), weights = file("w.safetensors");
  for (const char* files :
       {"--log tokens.bin", "--save ./tokens.bin", "--log x --save x",
        "--init w.safetensors --log w.safetensors", "--save z --log z.tokenizer"}) {
    EXPECT_EQ(train_at(std::string("--steps 1 ") + files).status, 2) << files;
  }
  const RunHow here{.folder = folder_.path()};
  const std::string eval =
      "eval --tokens tokens.bin --token-dtype uint16 --batch 2 --context 4 "
      "--init w.safetensors ";
  EXPECT_EQ(run_tracestep(words_of(eval + "--logits w.safetensors"), here).status, 2);
  EXPECT_EQ(run_tracestep(words_of(eval + "--logits x --gradients x"), here).status, 2);
  EXPECT_EQ(run_tracestep(words_of("generate --init w.safetensors --prompt-tokens 1 --output "
                                   "w.safetensors"),
                          here)
                .status,
            2);
  EXPECT_EQ(file("tokens.bin"), tokens);
  EXPECT_EQ(file("w.safetensors"), weights);
  EXPECT_EQ(train_at("--steps 1 --init w.safetensors --save w.safetensors").status, 0);
}

}  // namespace
}  // namespace tracestep
