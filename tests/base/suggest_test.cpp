#include "base/suggest.h"

#include <gtest/gtest.h>

namespace tracestep {
namespace {

const std::vector<std::string> kFlags = {"--batch", "--context", "--steps", "--seed"};

TEST(SuggestTest, DistancesCountSlips) {
  EXPECT_EQ(edit_distance("", "abc"), 3);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3);
  EXPECT_EQ(edit_distance("ab", "ba"), 1);
  EXPECT_EQ(edit_distance("ABC", "abc"), 0);
}

TEST(SuggestTest, ANearWordIsFoundAndAFarOneIsNot) {
  EXPECT_EQ(closest("--bacth", kFlags), "--batch");
  EXPECT_EQ(closest("--contxt", kFlags), "--context");
  EXPECT_EQ(closest("--wildly-different", kFlags), std::nullopt);
  EXPECT_EQ(closest("", kFlags), std::nullopt);
  EXPECT_EQ(closest(std::string(1000000, 'x'), kFlags), std::nullopt);
  EXPECT_EQ(closest("x", std::vector<std::string>{"y"}), std::nullopt);
}

TEST(SuggestTest, AWordThatIsAPartOfANameMeansThatName) {
  const std::vector<std::string> flags = {"--init", "--prompt-tokens", "--max-tokens",
                                          "--memory-limit", "--moments"};
  EXPECT_EQ(closest("--tokens", flags), "--max-tokens");
  EXPECT_EQ(closest("--limit", flags), "--memory-limit");
  EXPECT_EQ(closest("--initt", flags), "--init");
  EXPECT_EQ(closest("peak", std::vector<std::string>{"status", "peak_bytes"}), "peak_bytes");
}

TEST(SuggestTest, ASwapIsLikelierThanALetterLessAndAStartThanTwoSlips) {
  const std::vector<std::string> flags = {"--help", "--loss",        "--mode", "--model",
                                          "--ops",  "--temperature", "--seed"};
  EXPECT_EQ(closest("--modle", flags), "--model");
  EXPECT_EQ(closest("--temp", flags), "--temperature");
  // Two slips in four letters are no slips; the dashes are no letters.
  for (const char* other : {"--gpus", "--lora", "--seq"}) {
    EXPECT_EQ(closest(other, flags), std::nullopt) << other;
  }
}

TEST(SuggestTest, NamesAreTheSameInAnyCaseAndWithAnyBlanks) {
  EXPECT_EQ(folded("RTX 5090"), folded("rtx5090"));
  EXPECT_EQ(folded(" A100-SXM4-40GB"), "a100-sxm4-40gb");
}

TEST(SuggestTest, TheHintIsEmptyWithoutAGuess) {
  EXPECT_EQ(did_you_mean("--sed", kFlags), "; did you mean --seed?");
  EXPECT_EQ(did_you_mean("qqqqqq", kFlags), "");
}

}  // namespace
}  // namespace tracestep
