// Pairs of a time and how far it spreads: printed in one place.
#include "lab/report/spread.h"

#include <cmath>
#include <filesystem>
#include <regex>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/input_file.h"
#include "support/paths.h"

namespace tracestep {
namespace {

TEST(SpreadTest, AMeanHasADeviationAndAMedianABand) {
  EXPECT_EQ(mean_and_deviation(12.5, 25.2), "12 ± 25 ms");
  EXPECT_EQ(mean_and_deviation(25.43, 0.91), "25.43 ± 0.91 ms");
  EXPECT_EQ(mean_and_deviation(0.0012, 0.0026), "1.2 ± 2.6 µs");
  EXPECT_EQ(mean_and_deviation(3.0, std::nan("")), "3.000 ms");
  EXPECT_EQ(time_and_band(43.2, 28.1, 63.9), "43 ms (28 to 64)");
}

// Text that would put the sign between two numbers, in code or on a page.
TEST(SpreadTest, NothingElsePrintsAPlusMinusBetweenTwoNumbers) {
  static const std::regex of_median(R"(\(± ms\)[^\n]*median)");
  const auto folder = testing::source_folder() / "src";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << "these are no sources";
  std::size_t files = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    const std::string ending = entry.path().extension().string();
    if (ending != ".cpp" && ending != ".h" && ending != ".md") continue;
    const std::string text = read_text_file(entry.path(), "source", 1 << 22);
    ++files;
    const bool is_the_place = entry.path().filename() == "spread.cpp";
    EXPECT_EQ(text.find("} ± {") != std::string::npos, is_the_place) << entry.path();
    EXPECT_FALSE(std::regex_search(text, of_median)) << entry.path();
  }
  EXPECT_GT(files, 500u);
}

}  // namespace
}  // namespace tracestep
