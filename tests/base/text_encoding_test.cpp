#include "base/text_encoding.h"

#include <gtest/gtest.h>

namespace tracestep {
namespace {

using namespace std::string_literals;

TEST(TextEncodingTest, MarksAreToldApart) {
  EXPECT_EQ(byte_order_mark_of(""), TextMark::kNone);
  EXPECT_EQ(byte_order_mark_of("\xef\xbb"), TextMark::kNone);
  EXPECT_EQ(byte_order_mark_of("\xef\xbb\xbf"), TextMark::kUtf8);
  EXPECT_EQ(byte_order_mark_of("\xff\xfeh\0"s), TextMark::kUtf16Little);
  EXPECT_EQ(byte_order_mark_of("\xfe\xff\0h"s), TextMark::kUtf16Big);
  EXPECT_EQ(byte_order_mark_of("\xff\xfe\0\0"s), TextMark::kUtf32);
  EXPECT_EQ(byte_order_mark_of("\0\0\xfe\xff"s), TextMark::kUtf32);
}

TEST(TextEncodingTest, CharactersOfEveryLengthBecomeUtf8) {
  const std::string text = "z\0\xff\x07\xff\xff\x3d\xd8\x00\xde"s;  // U+7A, U+7FF, U+FFFF, U+1F600
  EXPECT_EQ(utf8_of_utf16(text, TextMark::kUtf16Little), "z\xdf\xbf\xef\xbf\xbf\xf0\x9f\x98\x80");
  EXPECT_EQ(utf8_of_utf16("\xdb\xff\xdf\xff"s, TextMark::kUtf16Big), "\xf4\x8f\xbf\xbf");
}

TEST(TextEncodingTest, WhatIsNoUtf16IsRefused) {
  for (const std::string& bytes : {"h"s, "\0\0"s, "\0\xdc"s, "\0\xd8"s, "\0\xd8h\0"s}) {
    EXPECT_FALSE(utf8_of_utf16(bytes, TextMark::kUtf16Little).has_value()) << bytes.size();
  }
}

TEST(TextEncodingTest, TextWithEveryOtherByteNulLooksLikeUtf16) {
  EXPECT_TRUE(looks_like_utf16("h\0i\0\xe9\x01"s));
  EXPECT_TRUE(looks_like_utf16("\0h\0i"s));
  EXPECT_FALSE(looks_like_utf16("hi"));
  EXPECT_FALSE(looks_like_utf16("a\0b"s));
  EXPECT_FALSE(looks_like_utf16("\0\0\0\0"s));
  EXPECT_FALSE(looks_like_utf16("a binary file with a single \0 in it"s));
}

}  // namespace
}  // namespace tracestep
