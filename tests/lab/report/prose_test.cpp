// Documents of words and tables in the formats that people compile.
#include "lab/report/prose.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tracestep {
namespace {

using ::testing::HasSubstr;

TEST(ProseTest, TextIsParagraphsAndBlocksOfCode) {
  const std::vector<Paragraph> parts =
      paragraphs_of("One\nline.\n\nTwo.\n\n```text\nThe `x`\n\ny\n```\n\nThree.");
  ASSERT_EQ(parts.size(), 4u);
  EXPECT_EQ(parts[0].text, "One\nline.");
  EXPECT_EQ(parts[1].text, "Two.");
  EXPECT_EQ(parts[2].text, "The `x`\n\ny");
  EXPECT_TRUE(parts[2].is_code);
  EXPECT_EQ(parts[3].text, "Three.");
  EXPECT_FALSE(parts[3].is_code);
}

TEST(ProseTest, CodeWithoutAnEndTakesTheRest) {
  const std::vector<Paragraph> parts = paragraphs_of("```\nabc");
  ASSERT_EQ(parts.size(), 1u);
  EXPECT_EQ(parts[0].text, "abc");
}

TEST(ProseTest, NothingOfATextIsTakenForMarkup) {
  const char* const text = "50 % of a_b #1 \"$x\" \\y";
  EXPECT_EQ(Prose(Format::kMarkdown).item(text), "- 50 % of a_b #1 \"$x\" \\y\n");
  EXPECT_THAT(Prose(Format::kLatex).item(text),
              HasSubstr("50 \\% of a\\_b \\#1 \\textquotedbl{}\\$x\\textquotedbl{} "
                        "\\textbackslash{}y"));
  EXPECT_EQ(Prose(Format::kTypst).item(text), "- #\"50 % of a_b #1 \\\"$x\\\" \\\\y\";\n");
}

TEST(ProseTest, NoTextIsAnElementOrAnAddressInMarkdown) {
  const Prose prose(Format::kMarkdown);
  EXPECT_EQ(prose.item("a <script>x</script> <!-- [y](javascript:z) < 0.1 <="),
            "- a \\<script>x\\</script> \\<!-- [y\\](javascript:z) < 0.1 <=\n");
  EXPECT_EQ(prose.paragraph({}, "See", "show --label '``<b>'"),
            "\nSee ``` show --label '``<b>' ```.\n");
  EXPECT_EQ(prose.reading("a <b>\n```cpp\nf<int>();\n```\n<c>"),
            "a \\<b>\n```cpp\nf<int>();\n```\n\\<c>\n");
}

TEST(ProseTest, AParagraphHasALeadAndACommand) {
  EXPECT_EQ(Prose(Format::kMarkdown).paragraph("Why?", "Because: see", "tracestep x"),
            "\n**Why?** Because: see `tracestep x`.\n");
  EXPECT_EQ(Prose(Format::kLatex).paragraph("Why?", "Because: see", "tracestep x"),
            "\n\\textbf{Why?} Because: see \\texttt{tracestep x}.\n");
  EXPECT_EQ(Prose(Format::kTypst).paragraph("Why?", "See", "tracestep x"),
            "\n#strong(\"Why?\"); #\"See\"; #raw(\"tracestep x\");#\".\";\n");
}

}  // namespace
}  // namespace tracestep
