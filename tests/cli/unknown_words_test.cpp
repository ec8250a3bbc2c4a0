// Words that the command line does not know lead to the option that was meant.
#include "cli/unknown_words.h"

#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/run_binary.h"
#include "support/temp_folder.h"

namespace tracestep {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

struct Typed {
  const char* words;
  const char* answer;
};

TEST(UnknownWordsTest, WhatIsTypedFirstLeadsToTheRightOption) {
  const TempFolder folder;
  std::filesystem::create_directory(folder / "hfmodel");
  folder.write("hfmodel/config.json", "{}");
  for (const Typed& typed : {
           Typed{"fit llama-3.1-8b", "did you mean --model llama-3.1-8b?"},
           {"fit small", "did you mean --size small?"},
           {"fit hfmodel", "did you mean --model hfmodel?"},
           {"train hfmodel/config.json", "did you mean --model hfmodel/config.json?"},
           {"generate hfmodel", "did you mean --model hfmodel?"},
           {"fit --modle x", "did you mean --model?"},
           {"fit --Model x", "did you mean --model?"},
           {"fit -model x", "did you mean --model?"},
           {"memory --gpus 8", "it is an option of fit; did you mean --parallel?"},
           {"memory --seq 4096", "did you mean --context?"},
           {"memory --seq-len 4096", "did you mean --context?"},
           {"memory --dtype bf16", "it is an option of export; did you mean --precision?"},
           {"bench --bs 4", "did you mean --batch?"},
           {"fit --qlora 8", "4-bit weights are not there yet"},
           {"train --lora_rank=8", "did you mean --lora?"},
           {"generate --temp 0.8", "did you mean --temperature?"},
           {"generate --checkpoint run", "it is an option of train; did you mean --init?"},
           {"train --lr-scheduler cosine", "did you mean --schedule?"},
           {"train --lr_warmup 5", "did you mean --warmup-steps?"},
           {"memory --validate-evry 2", "did you mean --validate-every, an option of train?"},
           {"memory --acumulate 2", "did you mean --accumulate?"},
           {"bench --rec blocks", "did you mean --recompute?"},
       }) {
    const ProgramRun run = run_tracestep(words_of(typed.words), {.folder = folder.path()});
    EXPECT_EQ(run.status, 2) << typed.words;
    EXPECT_THAT(run.err, HasSubstr(typed.answer)) << typed.words;
    EXPECT_EQ(std::ranges::count(run.err, '\n'), 1) << run.err;
  }
}

TEST(UnknownWordsTest, AFlagLikeNoOtherHasNoAnswerMadeUp) {
  EXPECT_THAT(run_tracestep(words_of("bench --zzzzzzzz 1")).err, Not(HasSubstr("did you mean")));
}

TEST(UnknownWordsTest, EveryNameOfOtherProgramsLeadsToAnOptionThatSomeCommandHas) {
  std::set<std::string> ours;
  for (const cli::Command& command : cli::all_commands()) {
    for (const cli::Option& option : command.options.options()) ours.insert(option.flag);
  }
  for (const auto& [theirs, meant] : cli::flags_elsewhere()) {
    EXPECT_TRUE(ours.contains(std::string(meant))) << theirs;
    EXPECT_THAT(theirs, Not(HasSubstr("_"))) << "it is compared in our letters";
  }
}

}  // namespace
}  // namespace tracestep
