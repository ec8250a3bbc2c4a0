#include "base/units.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace tracestep {
namespace {

template <class F>
std::string usage_error(F&& f) {
  try {
    f();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kUsage);
    return e.what();
  }
  return "no error";
}

TEST(UnitsTest, WholeNumbersAreParsedStrictly) {
  EXPECT_EQ(parse_int("--n", "8", 1, 100), 8);
  EXPECT_EQ(parse_int("--n", "-9223372036854775808"), INT64_MIN);
  EXPECT_EQ(parse_int("--n", "-0", -5, 5), 0);
  for (const char* text : {"", "8abc", " 8", "8 ", "+8", "1e3", "0x10", "8.0", "-", "nan", "-0",
                           "0", "101", "9223372036854775808", "99999999999999999999999"}) {
    EXPECT_NE(usage_error([&] { parse_int("--n", text, 1, 100); }), "no error") << text;
  }
}

TEST(UnitsTest, AnErrorNamesFlagValueAndRange) {
  EXPECT_EQ(usage_error([] { parse_int("--batch", "8abc", 1, 64); }),
            "[--batch] \"8abc\" is not a whole number; give a whole number from 1 to 64");
  EXPECT_EQ(usage_error([] { parse_real("--lr", "1e309", 0.0); }),
            "[--lr] \"1e309\" does not fit into 64 bits; give a number of at least 0");
  EXPECT_EQ(usage_error([] { parse_int("--n", "0", 1); }),
            "[--n] \"0\" is out of range; give a whole number of at least 1");
}

TEST(UnitsTest, HostileTextIsShortenedAndPrintable) {
  const std::string text = "\x1b[31m" + std::string(100000, 'x');
  const std::string message = usage_error([&] { parse_int("--n", text); });
  EXPECT_LT(message.size(), 150u);
  EXPECT_EQ(message.find('\x1b'), std::string::npos);
}

TEST(UnitsTest, RealNumbersAreFiniteAndInRange) {
  EXPECT_EQ(parse_real("--lr", "3e-4", 0.0, 1.0), 3e-4);
  EXPECT_EQ(parse_real("--lr", ".5"), 0.5);
  EXPECT_EQ(parse_real("--lr", "0", 0.0), 0.0);
  for (const char* text : {"", "nan", "inf", "-inf", "infinity", "1e309", "1e-400", "-0", "-0.0",
                           "1,5", "1.5x", " 1", "--1", "-", "0x1p3"}) {
    EXPECT_NE(usage_error([&] { parse_real("--lr", text, 0.0, 1e30); }), "no error") << text;
  }
}

TEST(UnitsTest, CountsAreWrittenAsPeopleDo) {
  for (const auto& [text, count] : {std::pair{"8", std::int64_t{8}},
                                    {"1e3", 1000},
                                    {"1E+3", 1000},
                                    {"10k", 10'000},
                                    {"10K", 10'000},
                                    {"1.5k", 1500},
                                    {"1.1k", 1100},
                                    {".5M", 500'000},
                                    {"2B", 2'000'000'000},
                                    {"2G", 2'000'000'000},
                                    {"1T", 1'000'000'000'000},
                                    {"9223372036854775807", INT64_MAX}}) {
    EXPECT_EQ(parse_count("--n", text, 1), count) << text;
  }
  EXPECT_EQ(parse_count("--context", "4k", 1, 1 << 20, Thousand::kBinary), 4096);
  EXPECT_EQ(parse_count("--context", "1M", 1, 1 << 20, Thousand::kBinary), 1 << 20);
  EXPECT_EQ(parse_count("--context", "1.5k", 1, 1 << 20, Thousand::kBinary), 1536);
  EXPECT_EQ(parse_count("--context", "1e3", 1, 1 << 20, Thousand::kBinary), 1000);
}

TEST(UnitsTest, WhatIsNoWholeCountIsRefused) {
  for (const char* text : {"",
                           "k",
                           "1.5",
                           "8.0",
                           "1.0001k",
                           "1e-3",
                           "1e3.5",
                           "1e",
                           "e3",
                           "1kk",
                           "k1",
                           "+1k",
                           " 1k",
                           "1 k",
                           "1k ",
                           "1..5k",
                           "0x1k",
                           "nank",
                           "infM",
                           "1m",
                           "1KiB",
                           "9223372036854776k",
                           "99999999T",
                           "1e19",
                           "1e999999999999",
                           "-1k",
                           "-0k",
                           "0k"}) {
    EXPECT_NE(usage_error([&] { parse_count("--n", text, 1); }), "no error") << text;
  }
  EXPECT_EQ(usage_error([] { parse_count("--n", "1.0001k", 1, 64); }),
            "[--n] \"1.0001k\" is not a whole number; give a whole number from 1 to 64");
  EXPECT_EQ(usage_error([] { parse_count("--n", "1k", 1, 64); }),
            "[--n] \"1k\" is out of range; give a whole number from 1 to 64");
  EXPECT_EQ(usage_error([] { parse_count("--n", "1e19", 1, 64); }),
            "[--n] \"1e19\" is not a whole number; give a whole number from 1 to 64");
}

TEST(UnitsTest, BytesHaveAUnit) {
  EXPECT_EQ(parse_bytes("--m", "123B"), 123);
  EXPECT_EQ(parse_bytes("--m", "24GB"), 24'000'000'000);
  EXPECT_EQ(parse_bytes("--m", "1.5MB"), 1'500'000);
  EXPECT_EQ(parse_bytes("--m", "0.29GB"), 290'000'000);
  EXPECT_EQ(parse_bytes("--m", "2kB"), 2000);
  EXPECT_EQ(parse_bytes("--m", "2KB"), 2000);
  EXPECT_EQ(parse_bytes("--m", "1TB"), 1'000'000'000'000);
  EXPECT_EQ(parse_bytes("--m", "512MiB"), 512ll << 20);
  EXPECT_EQ(parse_bytes("--m", "40GiB"), 40ll << 30);
  EXPECT_EQ(parse_bytes("--m", "1.5GiB"), 3ll << 29);
  EXPECT_EQ(parse_bytes("--m", "9223372036854775807B"), INT64_MAX);
  for (const char letter : {'K', 'M', 'G', 'T'}) {  // as schedulers and other tools write them
    const std::string short_form = std::string("24") + letter;
    EXPECT_EQ(parse_bytes("--m", short_form), parse_bytes("--m", short_form + "iB"));
  }
  for (const char* text : {"",           "24",
                           "0",          "1.5",
                           "24Gi",       "24GBs",
                           "24Gb",       "B",
                           "1iB",        "GiB",
                           "-1GiB",      "1GiBx",
                           "1 GiB",      "1gib",
                           "1..5GiB",    ".GiB",
                           "nan",        "9223372036854775808B",
                           "8388608TiB", "8388608.0TiB",
                           "1e3",        "1PB"}) {
    EXPECT_NE(usage_error([&] { parse_bytes("--m", text); }), "no error") << text;
  }
  EXPECT_EQ(usage_error([] { parse_bytes("--memory-limit", "24"); }),
            "[--memory-limit] \"24\" has no unit; 24 bytes? write 24GiB, 24MiB or 24B");
  EXPECT_EQ(usage_error([] { parse_bytes("--memory-limit", "395148"); }),
            "[--memory-limit] \"395148\" has no unit; write 395148B");
  EXPECT_NE(usage_error([] {
              parse_bytes("--m", "40g");
            }).find("write 40GiB (powers of 1024) or 40GB (of 1000)"),
            std::string::npos);
}

TEST(UnitsTest, BytesAreShownInTheLargestUnitThatFits) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(1023), "1023 B");
  EXPECT_EQ(format_bytes(1024), "1.00 KiB");
  EXPECT_EQ(format_bytes((1 << 20) - 1), "1.00 MiB");
  EXPECT_EQ(format_bytes(3ll << 29), "1.50 GiB");
  EXPECT_EQ(format_bytes(-(3ll << 29)), "-1.50 GiB");
  EXPECT_EQ(format_bytes(INT64_MAX), "8192.00 PiB");
}

TEST(UnitsTest, DurationsKeepThreeOrFourDigits) {
  EXPECT_EQ(format_duration_ms(0), "0.000 ms");
  EXPECT_EQ(format_duration_ms(0.00085), "850 ns");
  EXPECT_EQ(format_duration_ms(0.0123), "12.30 µs");
  EXPECT_EQ(format_duration_ms(4.56), "4.560 ms");
  EXPECT_EQ(format_duration_ms(456.7), "456.7 ms");
  EXPECT_EQ(format_duration_ms(1234), "1.23 s");
  EXPECT_EQ(format_duration_ms(123000), "2 min 03 s");
}

TEST(UnitsTest, CountsAndFlopsAreScaledByThousands) {
  EXPECT_EQ(format_count(999), "999");
  EXPECT_EQ(format_count(128625408), "128.63 M");
  EXPECT_EQ(format_count(3406809600), "3.41 B");
  EXPECT_EQ(format_flops(1.23e12), "1.23 TFLOP");
  EXPECT_EQ(format_flop_rate(5e9), "5.00 GFLOP/s");
}

}  // namespace
}  // namespace tracestep
