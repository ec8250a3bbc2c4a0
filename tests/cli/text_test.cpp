// The small parts that need no process: differences of programs, and text that arrives in pieces.
#include <gtest/gtest.h>

#include "cli/text_lines.h"
#include "cli/text_stream.h"

namespace tracestep::cli {
namespace {

TEST(ProgramDiffTest, EqualProgramsHaveNoDifference) {
  EXPECT_EQ(program_diff("a\nb\n", "a\nb\n"), "");
  EXPECT_EQ(program_diff("", ""), "");
}

TEST(ProgramDiffTest, NumbersOfValuesAreNotADifference) {
  EXPECT_EQ(program_diff("%1 = exp(%0)\n", "%7 = exp(%6)\n"), "");
  EXPECT_NE(program_diff("%a = exp(%0)\n", "%b = exp(%0)\n"), "");
}

TEST(ProgramDiffTest, ChangedLinesStandBetweenTheirNeighbours) {
  EXPECT_EQ(program_diff("a\nb\nc\n", "a\nx\nc\n"), " a\n-b\n+x\n c\n");
  EXPECT_EQ(program_diff("a\n", "a\nb\n"), " a\n+b\n");
  EXPECT_EQ(program_diff("a\nb\n", "b\n"), "-a\n b\n");
  EXPECT_EQ(program_diff("", "a\n"), "+a\n");
}

TEST(ProgramDiffTest, DistantLinesAreLeftOut) {
  EXPECT_EQ(program_diff("1\n2\n3\n4\n5\n6\n7\n8\n9\nz\n", "x\n2\n3\n4\n5\n6\n7\n8\n9\ny\n"),
            "-1\n+x\n 2\n 3\n 4\n...\n 7\n 8\n 9\n-z\n+y\n");
}

std::string streamed(const std::vector<int>& bytes) {
  const auto tokenizer = byte_tokenizer();
  std::string out;
  TextStream stream(tokenizer.get(), [&](std::string_view piece) { out += piece; });
  for (int byte : bytes) stream.add(byte);
  stream.finish();
  return out;
}

TEST(TextStreamTest, CharactersOfSeveralBytesAreNotCut) {
  const auto tokenizer = byte_tokenizer();
  std::vector<std::string> pieces;
  TextStream stream(tokenizer.get(), [&](std::string_view p) { pieces.emplace_back(p); });
  for (int byte : {0x61, 0xc3, 0xa9, 0x62}) stream.add(byte);
  EXPECT_EQ(pieces, (std::vector<std::string>{"a", "é", "b"}));
}

TEST(TextStreamTest, BrokenCharactersBecomeReplacements) {
  EXPECT_EQ(streamed({'a', 0xc3}), "a\uFFFD");
  EXPECT_EQ(streamed({0xa9, 'b'}), "\uFFFDb");
}

TEST(TextStreamTest, ControlCharactersCannotReachTheTerminal) {
  EXPECT_EQ(streamed({'a', 0x1b, '[', 'm'}), "a\\x1b[m");
}

TEST(TextStreamTest, LongTextsComeOutWhole) {
  std::vector<int> bytes;
  std::string expected;
  for (int i = 0; i < 300; ++i) {
    bytes.insert(bytes.end(), {0xe2, 0x82, 0xac, 'x'});
    expected += "€x";
  }
  EXPECT_EQ(streamed(bytes), expected);
}

TEST(TextStreamTest, WithoutATokenizerNumbersAreShown) {
  std::string out;
  TextStream stream(nullptr, [&](std::string_view piece) { out += piece; });
  for (int token : {1, 20, 300}) stream.add(token);
  stream.finish();
  EXPECT_EQ(out, "1 20 300");
}

}  // namespace
}  // namespace tracestep::cli
