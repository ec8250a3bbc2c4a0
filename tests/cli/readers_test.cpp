// Files that are hostile, enormous, or change under the program give one line of text and exit
// status 3, never a signal.
#include <chrono>
#include <thread>

#include <gtest/gtest.h>

#include "base/utf8.h"
#include "cli/run_binary.h"
#include "support/family_folder.h"
#include "support/paths.h"
#include "support/temp_folder.h"

namespace tracestep {
namespace {

constexpr const char* kTiny = " --vocab 64 --d-model 16 --d-ff 32 --heads 1 --layers 1 --context 8";

class ReadersTest : public ::testing::Test {
 protected:
  ProgramRun run(const std::string& arguments, std::function<void(pid_t)> while_running = {}) {
    return run_tracestep(words_of(arguments),
                         {.folder = folder_.path(), .while_running = std::move(while_running)});
  }
  void expect_refusal(const ProgramRun& run, std::string_view part) {
    EXPECT_EQ(run.status, 3) << run.err;
    EXPECT_TRUE(contains(run.err, part));
  }

  TempFolder folder_;
};

TEST_F(ReadersTest, ATokenFileThatIsCutShortDuringTrainingEndsTheRunWithAMessage) {
  const auto tokens = folder_.write("t.bin", std::string(1 << 20, '\0'));
  const auto cut = [&](pid_t) {
    while (content_of(folder_ / "log").empty()) {  // the first step is done
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    std::filesystem::resize_file(tokens, 100);
  };
  expect_refusal(run(std::string("train --tokens t.bin --token-dtype uint16 --order shuffled "
                                 "--steps 1000000 --log log --threads 1") +
                         kTiny,
                     cut),
                 "had 1048576 bytes when it was opened and has 100 now");
}

TEST_F(ReadersTest, ASnapshotThatIsNestedDeepEndsWithAMessage) {
  folder_.write("deep.pickle",
                "\x80\x02" + std::string(180'000, ']') + std::string(179'999, 'a') + ".");
  expect_refusal(run("memory --fingerprint deep.pickle"), "deep.pickle");
}

TEST_F(ReadersTest, EnormousFilesAreRefusedBeforeTheyAreRead) {
  folder_.write("text.txt", "some text to read");
  folder_.write("large", "");
  std::filesystem::resize_file(folder_ / "large", std::uint64_t{1} << 40);
  expect_refusal(run("train --text text.txt --tokenizer large --steps 1"), "at most 64.00 MiB");
  expect_refusal(run("compare large large"), "at most 256.00 MiB");
  std::filesystem::rename(folder_ / "large", folder_ / "large.csv");
  expect_refusal(run("compare large.csv --published"), "at most 256.00 MiB");
  std::filesystem::rename(folder_ / "large.csv", folder_ / "large");
  expect_refusal(run("memory --fingerprint large"), "at most 1.00 GiB");
  expect_refusal(run("eval --text text.txt --init large"), "large is no safetensors file");
}

// Editors and shells of Windows put such a mark before a text, or write it in UTF-16.
TEST_F(ReadersTest, TheMarkOfUtf8IsNoPartOfAFileAndThatOfUtf16IsSaid) {
  const std::string mark = "\xef\xbb\xbf", in_utf16 = std::string("\xff\xfe{\0}\0", 6);
  const auto expect_read = [&](const std::string& arguments) {
    const ProgramRun done = run(arguments);
    EXPECT_EQ(done.status, 0) << arguments << "\n" << done.err;
    return done.out;
  };
  folder_.write("text.txt", "some text to read, and some more of it");
  const std::string config = content_of(testing::family_fixture("llama2", ".json"));
  folder_.write("model/config.json", mark + config);
  EXPECT_TRUE(contains(expect_read("show --batch 1 --context 8 --model model"), "program"));
  folder_.write("tokenizer.json",
                mark + content_of(testing::source_folder() / "tests/golden/tokenizers/gpt2.json"));
  expect_read(
      "train --text text.txt --tokenizer tokenizer.json --batch 1 --steps 1 --threads 1 "
      "--context 2 --d-model 16 --d-ff 32 --heads 1 --layers 1");
  for (const std::string name : {"a.json", "a.csv"}) {
    run("bench --device null --output " + name + kTiny);
    folder_.write("b" + name, mark + content_of(folder_ / name));
    expect_read("compare " + name + " b" + name);
  }
  folder_.write("model/config.json", in_utf16);
  expect_refusal(run("show --model model"), "is text in UTF-16");
  for (const std::string command : {"compare a.json in_utf16", "pivot in_utf16 --across size"}) {
    folder_.write("in_utf16", in_utf16);
    expect_refusal(run(command), "is text in UTF-16");
  }
}

TEST_F(ReadersTest, WhatAFileHoldsCannotReachTheTerminalAsItIs) {
  const std::string name = "\x1b[31mred\x07\xff" + std::string(100'000, 'x');
  std::string json = "{\"schema\":\"\\u001b[31mred\\u0007" + std::string(100'000, 'x') +
                     "\",\"environment\":{},\"rows\":[]}";
  folder_.write("r.json", json);
  const ProgramRun run = this->run("compare r.json r.json");
  expect_refusal(run, "\\x1b[31mred\\x07xxx");
  EXPECT_LT(run.err.size(), 4200u);
  EXPECT_TRUE(is_utf8(run.err));
  const ProgramRun flag = run_tracestep({"bench", "--size", name});
  EXPECT_EQ(flag.status, 2);
  EXPECT_TRUE(contains(flag.err, "\\x1b[31mred\\x07\\xff"));
  EXPECT_LT(flag.err.size(), 4200u);
}

}  // namespace
}  // namespace tracestep
