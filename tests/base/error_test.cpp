#include "base/error.h"

#include <filesystem>

#include <gtest/gtest.h>

namespace tracestep {
namespace {

TEST(ErrorTest, KnowsWhatItIsAbout) {
  using Kind = About::Kind;
  const auto kind = [](const About& about) {
    return Error(ErrorCode::kUsage, about, "").about().kind;
  };
  EXPECT_EQ(kind("heads"_field), Kind::kField);
  EXPECT_EQ(kind(std::filesystem::path("heads")), Kind::kFile);
  EXPECT_EQ(kind("heads"), Kind::kText);
  EXPECT_EQ(kind(std::string("heads")), Kind::kText);
  EXPECT_EQ(DeviceError("cuda", "launch", "").about().kind, Kind::kDevice);
}

TEST(ErrorTest, MarksOfOptionsAreWordsInItsText) {
  const Error error(ErrorCode::kUsage, "heads"_field, "4 with " TRACESTEP_OPTION(d_model) " 3",
                    "give " TRACESTEP_OPTION(heads) " 3");
  EXPECT_STREQ(error.what(), "[heads] 4 with option d_model 3; give option heads 3");
  EXPECT_EQ(error.text(), "4 with option d_model 3");
}

// An error that another one becomes part of hands its marks on.
TEST(ErrorTest, MarksSurviveAnotherError) {
  const Error inner(ErrorCode::kUsage, "x", "give " TRACESTEP_OPTION(heads));
  const Error outer(ErrorCode::kInput, "y", fmt::format("in a file: {}", inner.message()));
  EXPECT_EQ(with_options(outer.message(), [](auto name) { return "<" + std::string(name) + ">"; }),
            "in a file: give <heads>");
}

}  // namespace
}  // namespace tracestep
