#include "cli/option_set.h"

#include <gtest/gtest.h>

namespace tracestep::cli {
namespace {

class FlagNamesTest : public ::testing::Test {
 protected:
  FlagNamesTest() {
    for (const char* flag : {"--size", "--d-model", "--heads", "--layers", "--resume"}) {
      options_.text(flag, "X", text_, "instead of " TRACESTEP_OPTION(d_model));
    }
  }

  std::string text_;
  OptionSet options_;
};

TEST_F(FlagNamesTest, AMarkBecomesAFlag) {
  EXPECT_EQ(options_.in_flags("give " TRACESTEP_OPTION(size) ", or " TRACESTEP_OPTION(
                d_model) " and " TRACESTEP_OPTION(heads) " 4"),
            "give --size, or --d-model and --heads 4");
}

TEST_F(FlagNamesTest, WhatTheCommandLacksKeepsItsName) {
  EXPECT_EQ(options_.in_flags("give " TRACESTEP_OPTION(seed) " 3"), "give option seed 3");
}

// Words of a user, such as the name of a file, are no marks.
TEST_F(FlagNamesTest, OtherWordsStay) {
  for (const char* text : {"", "option size", "options layers and heads", "--size", "size", "\x1f",
                           "\x1f\x1f", "a \x1fsize", "\x1fsi ze\x1f", "size\x1f"}) {
    EXPECT_EQ(options_.in_flags(text), text);
  }
}

TEST_F(FlagNamesTest, HelpTextsHaveFlags) {
  options_.show_flags();
  EXPECT_EQ(options_.options().front().doc, "instead of --d-model");
}

// "--resume size" names a file; an error about it must not speak of the option --size.
TEST_F(FlagNamesTest, AnErrorAboutAFieldHasItsFlag) {
  const auto where = [&](const About& about) {
    return options_.in_flags(Error(ErrorCode::kInput, about, "it holds something else")).where();
  };
  EXPECT_EQ(where("size"_field), "--size");
  EXPECT_EQ(where("d_model"_field), "--d-model");
  EXPECT_EQ(where("seed"_field), "seed");
  EXPECT_EQ(where(std::filesystem::path("size")), "size");
  EXPECT_EQ(where("size"), "size");
  EXPECT_EQ(where({About::Kind::kOp, "size"}), "size");
}

TEST_F(FlagNamesTest, AllPartsOfAnErrorAreShown) {
  const Error shown = options_.in_flags(Error(ErrorCode::kUsage, "heads"_field,
                                              "4 with " TRACESTEP_OPTION(layers) " 3",
                                              "leave " TRACESTEP_OPTION(resume) " out"));
  EXPECT_STREQ(shown.what(), "[--heads] 4 with --layers 3; leave --resume out");
  EXPECT_EQ(shown.code(), ErrorCode::kUsage);
}

}  // namespace
}  // namespace tracestep::cli
