#include "base/utf8.h"

#include <gtest/gtest.h>

namespace tracestep {
namespace {

TEST(Utf8Test, WhatIsNoTextIsReplacedAsPythonDoesIt) {
  const std::string mark = "\xef\xbf\xbd";
  EXPECT_EQ(with_replacements("caf\u00e9 \U0001f600"), "caf\u00e9 \U0001f600");
  EXPECT_EQ(with_replacements("a\xff\xfe z"), "a" + mark + mark + " z");
  EXPECT_EQ(with_replacements("\xe6\xbc"), mark);
  EXPECT_EQ(with_replacements("\xe6\xbcx\xf0\x9f\x98y"), mark + "x" + mark + "y");
  EXPECT_EQ(with_replacements("\xf0\x9fz\xc3"), mark + "z" + mark);
  // Long forms, surrogates and what is beyond U+10FFFF begin no character.
  EXPECT_EQ(with_replacements("\xc0\xaf\xe0\x80"), mark + mark + mark + mark);
  EXPECT_EQ(with_replacements("\xed\xa0\x80\xf4\x90"), mark + mark + mark + mark + mark);
  EXPECT_EQ(with_replacements("\xf0\x8f\xbf"), mark + mark + mark);
}

TEST(Utf8Test, WellFormedTextIsToldFromBytes) {
  EXPECT_TRUE(is_utf8(""));
  EXPECT_TRUE(is_utf8("a\xc3\xa9\xe6\xbc\xa2\xf0\x9f\x98\x80\xf4\x8f\xbf\xbf\xef\xbf\xbf"));
  for (const char* bad :
       {"\x80", "\xc0\x80", "\xc1\xbf", "\xc3", "\xe0\x80\x80", "\xed\xa0\x80", "\xf0\x80\x80\x80",
        "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xe6\xbc", "\xff", "a\xf0\x9f\x98"}) {
    EXPECT_FALSE(is_utf8(bad));
  }
}

TEST(Utf8Test, GeneratedTextCannotSendEscapeSequences) {
  EXPECT_EQ(printable("a\n\tb\x1b[2J\x7f\xc2\x9b"), "a\n\tb\\x1b[2J\\x7f\\x9b");
  EXPECT_EQ(printable("\xff\xe6\xbc"), "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd");
}

TEST(Utf8Test, AMessageIsOneLineOfTextWhateverItQuotes) {
  EXPECT_EQ(message_line("caf\xc3\xa9 \xe2\x82\xac"), "caf\xc3\xa9 \xe2\x82\xac");
  EXPECT_EQ(message_line("a\nb\r\x1b]0;x\x07\xc2\x85"), "a\\x0ab\\x0d\\x1b]0;x\\x07\\x85");
  EXPECT_EQ(message_line("\xff\xe6\xbc"), "\\xff\\xe6\\xbc");
  EXPECT_EQ(message_line(std::string_view("a\0b", 3)), "a\\x00b");
}

// "file\u202egpj.exe" would be read as "fileexe.jpg".
TEST(Utf8Test, MarksThatMoveOtherCharactersAreShown) {
  EXPECT_EQ(message_line("a\u202eb\u2066c\u2069"), "a\\u202eb\\u2066c\\u2069");
  EXPECT_EQ(escaped("\u061c\u200e\u200f\u2028\u2029\u202a\u206f"),
            "\\u061c\\u200e\\u200f\\u2028\\u2029\\u202a\\u206f");
  EXPECT_EQ(with_visible_marks("<\n\u202e\xff"), "<\n\\u202e\xff");
  // Letters of those scripts, and what joins emoji, stay.
  const std::string text = "שלום مرحبا \u200d\u2060\u2027\u2030\u2065 é";
  EXPECT_EQ(message_line(text), text);
  EXPECT_EQ(with_visible_marks(text), text);
}

TEST(Utf8Test, EscapedBytesComeBackAsTheyWere) {
  EXPECT_EQ(escaped_bytes("a\x1b[2J\r\n\t\xc2\x9b\u202e\xff"),
            "a\\x1b[2J\\x0d\n\t\\xc2\\x9b\\xe2\\x80\\xae\\xff");
  EXPECT_EQ(escaped_bytes("C:\\x64 C:\\y"), "C:\\x5cx64 C:\\y");
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all += static_cast<char>(byte);
  for (const std::string& text : {all, std::string("\\x1b"), std::string("\\\\x1b\\x5c"),
                                  std::string("\\x"), std::string("\\xg1 \\x5")}) {
    EXPECT_EQ(unescaped_bytes(escaped_bytes(text)), text);
    EXPECT_TRUE(is_utf8(escaped_bytes(text)));
  }
}

TEST(Utf8Test, OfALongMessageTheMiddleGivesWay) {
  EXPECT_EQ(message_line("0123456789abcdefghij", 15), "01234 ... fghij");
  const std::string huge = "[start]" + std::string(10'000'000, '\x01') + "[end]";
  const std::string line = message_line(huge);
  EXPECT_LE(line.size(), 4096u);
  EXPECT_TRUE(line.starts_with("[start]\\x01")) << line.substr(0, 20);
  EXPECT_TRUE(line.ends_with("\\x01[end]"));
  // Characters stay whole, wherever the cut falls.
  for (std::size_t bytes = 16; bytes < 40; ++bytes) {
    std::string text;
    for (int i = 0; i < 50; ++i) text += "a\xf0\x9f\x98\x80\xe6\xbc\xa2";
    EXPECT_TRUE(is_utf8(message_line(text, bytes))) << bytes;
    EXPECT_LE(message_line(text, bytes).size(), bytes);
  }
}

}  // namespace
}  // namespace tracestep
