// Axes: our ticks are those of d3 on thousands of random ranges, scales are inverse to nothing but
// straight, and texts of ticks are short.
#include "lab/report/chart/scale.h"

#include <cmath>
#include <fstream>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/paths.h"

namespace tracestep {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;

struct Case {
  std::string kind;
  double low = 0, high = 0;
  int count = 0;
  std::vector<double> ticks;
};

std::vector<Case> cases_of_d3() {
  std::ifstream in(testing::source_folder() / "tests/lab/report/data/d3_scales.csv");
  std::vector<Case> out;
  std::string line;
  std::getline(in, line);
  while (std::getline(in, line)) {
    std::istringstream cells(line);
    std::string kind, low, high, count, ticks;
    Case c;
    std::getline(cells, c.kind, ',');
    std::getline(cells, low, ',');
    std::getline(cells, high, ',');
    std::getline(cells, count, ',');
    std::getline(cells, ticks, ',');
    c.low = std::stod(low);
    c.high = std::stod(high);
    c.count = std::stoi(count);
    std::istringstream words(ticks);
    for (double v; words >> v;) c.ticks.push_back(v);
    out.push_back(std::move(c));
  }
  return out;
}

TEST(ScaleTest, TicksAreThoseOfD3) {
  int linear = 0, logarithmic = 0;
  for (const Case& c : cases_of_d3()) {
    std::vector<double> values;
    std::string labelled;
    if (c.kind == "linear") {
      ++linear;
      values = linear_ticks(c.low, c.high, c.count);
    } else {
      ++logarithmic;
      for (const Tick& t : log_ticks(c.low, c.high, c.kind == "log2" ? 2 : 10, c.count)) {
        values.push_back(t.value);
        labelled += t.is_labelled ? '1' : '0';
      }
    }
    const std::string name = fmt::format("{} [{}, {}], {} ticks", c.kind, c.low, c.high, c.count);
    ASSERT_EQ(values.size(), c.ticks.size()) << name;
    for (std::size_t i = 0; i < values.size(); ++i) {
      EXPECT_NEAR(values[i], c.ticks[i], 1e-11 * std::abs(c.ticks[i])) << name;
    }
    // Where ticks are more than there is room for, those that begin with 1, 2 or 5 have labels.
    if (c.kind == "log10" && values.size() > static_cast<std::size_t>(c.count)) {
      for (std::size_t i = 0; i < values.size() && i < labelled.size(); ++i) {
        const double digit = values[i] / std::pow(10.0, std::floor(std::log10(values[i]) + 1e-9));
        if (labelled[i] == '1') {
          EXPECT_TRUE(std::abs(digit - 1) < 1e-6 || std::abs(digit - 2) < 1e-6 ||
                      std::abs(digit - 5) < 1e-6)
              << name << ": " << values[i];
        }
      }
    }
  }
  EXPECT_GT(linear, 1400);
  EXPECT_GT(logarithmic, 1400);
}

TEST(ScaleTest, OddRangesHaveNoTicksOrOne) {
  EXPECT_THAT(linear_ticks(3, 3, 5), ElementsAre(3));
  EXPECT_THAT(linear_ticks(0, 1, 0), ElementsAre());
  EXPECT_THAT(linear_ticks(0, INFINITY, 5), ElementsAre());
}

TEST(ScaleTest, ALinearScaleIsStraightAndALogarithmicOneIsStraightInTheExponent) {
  const Scale linear({10, 30}, {100, 0}, false);
  EXPECT_THAT(linear.at(10), DoubleNear(100, 1e-9));
  EXPECT_THAT(linear.at(15), DoubleNear(75, 1e-9));
  const Scale log({1, 1000}, {0, 300}, true);
  EXPECT_THAT(log.at(10), DoubleNear(100, 1e-9));
  EXPECT_THAT(log.at(1000), DoubleNear(300, 1e-9));
  EXPECT_THAT(Scale({5, 5}, {0, 10}, false).at(5), DoubleNear(5, 1e-9));  // in the middle
}

std::vector<std::string> texts_of(const Scale& scale, int count, AxisUnit unit) {
  std::vector<std::string> out;
  for (const Tick& t : scale.ticks(count)) out.push_back(tick_text(t.value, unit));
  return out;
}

TEST(ScaleTest, TicksOfBytesAreRoundInTheirUnit) {
  const double mib = 1 << 20;
  const AxisUnit bytes = AxisUnit::kBytes;
  EXPECT_THAT(texts_of(Scale({0, 1600 * mib}, {0, 1}, false, bytes), 4, bytes),
              ElementsAre("0 B", "512 MiB", "1 GiB", "1.5 GiB"));
  EXPECT_THAT(texts_of(Scale({0, 3.2 * 1024 * mib}, {0, 1}, false, bytes), 3, bytes),
              ElementsAre("0 B", "1 GiB", "2 GiB", "3 GiB"));
  EXPECT_THAT(texts_of(Scale({mib, 8 * mib}, {0, 1}, true, bytes), 5, bytes),
              ElementsAre("1 MiB", "2 MiB", "4 MiB", "8 MiB"));
}

TEST(ScaleTest, TextsOfTicksAreShort) {
  const auto text = [](double v) { return tick_text(v, AxisUnit::kNumber); };
  EXPECT_EQ(text(0), "0");
  EXPECT_EQ(text(0.25), "0.25");
  EXPECT_EQ(text(2500), "2500");
  EXPECT_EQ(text(20000), "20k");
  EXPECT_EQ(text(-3e6), "-3M");
  EXPECT_EQ(text(1e-6), "1e-06");
  EXPECT_EQ(text(3 * 0.1), "0.3");
}

}  // namespace
}  // namespace tracestep
