#include "base/json.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "base/error.h"
#include "support/allocation_peak.h"

namespace tracestep {
namespace {

std::string error_of(std::string_view text) {
  try {
    Json::parse(text, "file.json");
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kInput);
    return e.what();
  }
  return "no error";
}

TEST(JsonTest, WhatIsWrittenReadsBackEqual) {
  Json json = Json::object();
  json["z"] = std::numeric_limits<std::int64_t>::min();
  json["a"] = 0.1;
  json["one"] = 1.0;
  json["text"] = "quote \" slash \\ newline \n µ";
  json["list"].push_back(true);
  json["list"].push_back(Json());
  json["list"].push_back(Json::object());
  json["empty"] = Json::array();
  for (int indent : {-1, 0, 2}) EXPECT_EQ(Json::parse(json.dump(indent), "x"), json) << indent;
}

TEST(JsonTest, KeysKeepTheirOrderAndOneLineHasNoSpaces) {
  EXPECT_EQ(Json::parse(R"({"b": 1, "a": [1.0, -0.0, 1e300]})", "x").dump(),
            R"({"b":1,"a":[1.0,-0.0,1e+300]})");
}

TEST(JsonTest, IndentedArraysOfScalarsStayOnOneLine) {
  EXPECT_EQ(Json::parse(R"({"a":[1,2],"b":[[3],{}]})", "x").dump(2),
            "{\n  \"a\": [1, 2],\n  \"b\": [\n    [3],\n    {}\n  ]\n}");
}

TEST(JsonTest, NanAndInfinityAreWrittenAsNull) {
  EXPECT_EQ(Json(std::numeric_limits<double>::quiet_NaN()).dump(), "null");
  EXPECT_EQ(Json(-std::numeric_limits<double>::infinity()).dump(), "null");
}

TEST(JsonTest, IntegersAreExactAndLargerOnesAreNoIntegers) {
  EXPECT_EQ(Json::parse("9223372036854775807", "x").as_int(), INT64_MAX);
  EXPECT_EQ(Json::parse("-9223372036854775808", "x").as_int(), INT64_MIN);
  const Json large = Json::parse("9223372036854775808", "x");
  EXPECT_THROW(large.as_int(), Error);
  EXPECT_EQ(large.as_double(), 0x1p63);
  EXPECT_NE(error_of("1" + std::string(400, '0')).find("not valid"), std::string::npos);
}

TEST(JsonTest, BrokenTextIsAnErrorWithItsPosition) {
  EXPECT_EQ(error_of("{\"a\":1,}").substr(0, 37), "[file.json] not valid JSON at byte 8:");
  for (const char* text : {"", " ", "{", "[1,]", "[1] 2", "nul", "01", "\"\x01\"", "\"\xff\"",
                           "{\"a\":1 \"b\":2}", "[NaN]", "// x\n1", "'a'"}) {
    EXPECT_NE(error_of(text), "no error") << text;
  }
}

TEST(JsonTest, ANulByteIsNoEndOfTheText) {
  const std::string behind("[1]\0precious", 12);
  EXPECT_NE(error_of(behind).find("at byte 4: a NUL byte"), std::string::npos) << error_of(behind);
  EXPECT_NE(error_of(std::string("\"a\0b\"", 5)), "no error");
}

TEST(JsonTest, DuplicateKeysAreRejectedInOneObjectOnly) {
  EXPECT_NE(error_of(R"({"a":1,"a":2})").find("\"a\" occurs twice"), std::string::npos);
  EXPECT_EQ(error_of(R"({"a":{"a":1},"b":{"a":2}})"), "no error");
}

TEST(JsonTest, HostileNestingAndHugeTokensAreShortErrors) {
  EXPECT_EQ(error_of(std::string(256, '[') + std::string(256, ']')), "no error");
  EXPECT_NE(error_of(std::string(257, '[')).find("256 levels"), std::string::npos);
  EXPECT_NE(error_of(std::string(1000000, '[')).find("256 levels"), std::string::npos);
  EXPECT_LT(error_of("\"" + std::string(1000000, 'x')).size(), 400u);
}

TEST(JsonTest, ValuesThatTakeFarMoreMemoryThanTheirTextAreRefused) {
  for (std::string_view element : {"0,", "[],", "{},", "\"\",", "{\"\":0},"}) {
    std::string text = "[";
    while (text.size() < (std::size_t{12} << 20)) text += element;
    text.back() = ']';
    const std::size_t peak = testing::allocation_peak_of([&] {
      EXPECT_NE(error_of(text).find("more than 3 times its size in memory"), std::string::npos);
    });
    EXPECT_LT(peak, 3 * text.size() + (std::size_t{100} << 20)) << element;
  }
}

TEST(JsonTest, MinusZeroIsNoInteger) {
  EXPECT_THROW(Json::parse("-0", "x").as_int(), Error);
  EXPECT_TRUE(std::signbit(Json::parse("-0", "x").as_double()));
}

TEST(JsonTest, InvalidUtf8IsReplacedWhenWritten) {
  EXPECT_EQ(Json("a\xff").dump(), "\"a\xEF\xBF\xBD\"");
}

TEST(JsonTest, TheWrongTypeIsAnErrorNamingBoth) {
  try {
    Json("x").as_int();
    FAIL();
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(), "[json] a string where a 64-bit integer is needed");
  }
  EXPECT_THROW(Json::object().at("missing"), Error);
  EXPECT_EQ(Json(3).as_double(), 3.0);
  EXPECT_THROW(Json(3.0).as_int(), Error);
}

}  // namespace
}  // namespace tracestep
