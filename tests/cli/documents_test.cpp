// Training and evaluating on documents, as a person does: prompts with answers and conversations,
// packed or not, resumed, with rows that are broken.
#include <gtest/gtest.h>

#include "base/json.h"
#include "cli/run_binary.h"
#include "support/temp_folder.h"

namespace tracestep {
namespace {

const std::string kSmall = " --d-model 16 --d-ff 32 --layers 2 --heads 2 --threads 1 --format json";

bool contains_word(const std::string& command, const std::string& word) {
  return command.find(word) != std::string::npos;
}

// Sums of one length.
std::string rows(int count) {
  std::string out;
  for (int i = 0; i < count; ++i) {
    out += fmt::format("{{\"prompt\": \"{}+{}=\", \"completion\": \"{}\"}}\n", i + 10, i % 7,
                       i + 10 + i % 7);
  }
  return out;
}

class DocumentsCommandTest : public ::testing::Test {
 protected:
  ProgramRun run(const std::string& command) {
    std::string all = command;
    const bool resumes = contains_word(command, "--resume");
    for (const auto& [flag, value] : {std::pair{"--context", "24"}, {"--batch", "2"}}) {
      if (!resumes && !contains_word(command, flag)) all += fmt::format(" {} {}", flag, value);
    }
    all += resumes ? " --format json" : kSmall;
    return run_tracestep(words_of(all), {.folder = folder_.path()});
  }
  // The figure of the only row of the result.
  double figure(const ProgramRun& run, std::string_view name) {
    EXPECT_EQ(run.status, 0) << run.err;
    const Json result = Json::parse(run.out, "output");
    return result.at("rows").items().front().at(name).as_double();
  }

  TempFolder folder_;
};

TEST_F(DocumentsCommandTest, PackedPromptsAreLearnedAndResumed) {
  folder_.write("sums.jsonl", rows(60));
  const std::string data = "train --data sums.jsonl --pack --lr 1e-2 --validate-every 5 ";
  const ProgramRun whole = run(data + "--steps 20 --save whole.safetensors");
  EXPECT_TRUE(contains(whole.err, "60 documents")) << whole.err;
  EXPECT_TRUE(contains(whole.err, " % of the places filled; 0 longer ones split")) << whole.err;
  EXPECT_LT(figure(whole, "loss"), 0.8 * figure(whole, "first_loss"));
  figure(run(data + "--steps 10 --checkpoint run"), "loss");
  const ProgramRun resumed =
      run("train --checkpoint run --resume --steps 20 --save resumed.safetensors");
  EXPECT_EQ(figure(resumed, "loss"), figure(whole, "loss"));
  EXPECT_EQ(content_of(folder_ / "whole.safetensors"), content_of(folder_ / "resumed.safetensors"));
}

// Validation says of the documents that it set aside what eval says of them.
TEST_F(DocumentsCommandTest, ValidationIsTheEvaluationOfWhatWasSetAside) {
  folder_.write("all.jsonl", rows(40));
  const std::string all = rows(40), first = rows(30);
  folder_.write("held.jsonl", all.substr(first.size()));
  const ProgramRun trained =
      run("train --data all.jsonl --pack --steps 2 --validate-every 2 --validation-fraction 0.25 "
          "--save w.safetensors");
  const ProgramRun evaluated = run("eval --data held.jsonl --pack --init w.safetensors");
  EXPECT_NEAR(figure(trained, "validation_loss"), figure(evaluated, "loss"), 1e-6);
}

TEST_F(DocumentsCommandTest, MicroBatchesAreOneBatch) {
  folder_.write("sums.jsonl", rows(60));
  const std::string data = "train --data sums.jsonl --pack --order sequential --steps 3 ";
  const double one = figure(run(data + "--batch 4"), "loss");
  EXPECT_NEAR(figure(run(data + "--accumulate 2"), "loss"), one, 1e-5);
}

TEST_F(DocumentsCommandTest, ConversationsNeedTheirTemplate) {
  std::string chats;
  for (int i = 0; i < 9; ++i) {
    chats += R"({"messages": [{"role": "user", "content": "Hi"}, )"
             R"({"role": "assistant", "content": "Ho"}]})"
             "\n";
  }
  folder_.write("chats/a.jsonl", chats);
  folder_.write("chats/notes.txt", "a file is a document, too\n");
  const ProgramRun without = run("train --data chats --steps 1");
  EXPECT_EQ(without.status, 3);
  EXPECT_TRUE(contains(without.err, "no chat template is chosen")) << without.err;
  const ProgramRun with =
      run("train --data chats --chat-template chatml --pack --context 80 --steps 2");
  EXPECT_EQ(with.status, 0) << with.err;
  EXPECT_TRUE(contains(with.err, "10 documents")) << with.err;
  EXPECT_EQ(run("train --data chats --chat-template chatml --steps 2").status, 0);
}

TEST_F(DocumentsCommandTest, WhatCannotBeIsRefused) {
  folder_.write("a.txt", "some text that is long enough for a row of twenty-four places");
  folder_.write("sums.jsonl", rows(9) + "broken\n");
  EXPECT_TRUE(contains(run("train --text a.txt --pack --steps 1").err, "give --data PATH..."));
  EXPECT_TRUE(
      contains(run("train --text a.txt --data a.txt --steps 1").err, "--text is given as well"));
  const ProgramRun broken = run("train --data sums.jsonl --steps 1");
  EXPECT_EQ(broken.status, 3);
  EXPECT_TRUE(contains(broken.err, "sums.jsonl:10: ")) << broken.err;
  EXPECT_EQ(run("train --data sums.jsonl --broken-rows 0.2 --steps 1").status, 0);
  EXPECT_TRUE(contains(run("train --data a.txt --end-of-text ab --steps 1").err, "is 2 tokens"));
  folder_.write("blank.jsonl", "\n\n");
  EXPECT_TRUE(contains(run("train --data blank.jsonl --steps 1").err,
                       "[--data] there is no document in blank.jsonl"));
  EXPECT_TRUE(
      contains(run("train --data none.jsonl --steps 1").err, "[--data] none.jsonl does not exist"));
}

}  // namespace
}  // namespace tracestep
