#include "cli/flag_names.h"

#include <vector>

#include <gtest/gtest.h>

namespace tracestep::cli {
namespace {

class FlagNamesTest : public ::testing::Test {
 protected:
  FlagNamesTest() {
    for (const char* flag : {"--size", "--d-model", "--heads", "--layers", "--resume"}) {
      options_.text(flag, "X", text_, "");
    }
  }
  std::string flags(std::string_view text) const { return with_flags(options_, text); }

  std::string text_;
  OptionSet options_;
};

TEST_F(FlagNamesTest, AnOptionBecomesItsFlag) {
  EXPECT_EQ(flags("leave option d_model out"), "leave --d-model out");
  EXPECT_EQ(flags("option resume, or another folder"), "--resume, or another folder");
}

TEST_F(FlagNamesTest, AListOfOptionsEndsAtTheFirstWordThatIsNone) {
  EXPECT_EQ(flags("give option size, or options d_model, layers and heads"),
            "give --size, or --d-model, --layers and --heads");
  EXPECT_EQ(flags("options layers and heads, or option size"), "--layers and --heads, or --size");
  EXPECT_EQ(flags("options layers, and then resume"), "--layers, and then resume");
}

TEST_F(FlagNamesTest, OtherWordsStay) {
  for (const char* text :
       {"", "option", "option ", "options ", "use the same options, or another folder",
        "option seed 3", "an adoption size", "optional size"}) {
    EXPECT_EQ(flags(text), text);
  }
}

TEST_F(FlagNamesTest, OneOptionIsNoList) {
  EXPECT_EQ(flags("option size or heads"), "--size or heads");
}

// "--resume size" names a file; an error about it must not speak of the option --size.
TEST_F(FlagNamesTest, AFileOfTheCommandLineKeepsItsName) {
  const auto where = [&](ErrorCode code, const std::vector<std::string>& arguments) {
    return in_flags(options_, Error(code, "size", "it holds something else"), arguments).where();
  };
  EXPECT_EQ(where(ErrorCode::kInput, {"bench", "--resume", "size"}), "size");
  EXPECT_EQ(where(ErrorCode::kOutput, {"bench", "--resume=size"}), "size");
  EXPECT_EQ(where(ErrorCode::kInput, {"bench", "--resume", "rows"}), "--size");
  EXPECT_EQ(where(ErrorCode::kUsage, {"bench", "--resume", "size"}), "--size");
}

TEST_F(FlagNamesTest, FieldsThatAreNoOptionsHaveNoFlag) {
  EXPECT_EQ(flag_of(options_, "d_model"), "--d-model");
  EXPECT_EQ(flag_of(options_, "seed"), "");
  EXPECT_EQ(flag_of(options_, ""), "");
}

}  // namespace
}  // namespace tracestep::cli
