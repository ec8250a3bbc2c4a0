// The driver of experiments: what is known is not measured again, and a limited time is spent on
// what is missing.
#include "lab/driver/driver.h"

#include <map>

#include <gtest/gtest.h>

namespace tracestep {
namespace {

// Keeps rows by their keys.
class KeepingDriver final : public Driver {
 public:
  std::size_t rows() const { return rows_.size(); }
  void forget_round(int round) {
    std::erase_if(rows_, [&](const auto& row) {
      return row.first.find("\"round\":" + std::to_string(round)) != std::string::npos;
    });
  }

 private:
  const Json* row(const Json& key) const override {
    const auto found = rows_.find(key.dump());
    return found == rows_.end() ? nullptr : &found->second;
  }
  bool keeps_rows() const override { return true; }
  void keep(const Json& key, Json row) override { rows_[key.dump()] = std::move(row); }

  std::map<std::string, Json> rows_;
};

class DriverTest : public ::testing::Test {
 protected:
  // Cells of one model at so many contexts.
  static std::vector<CellSpec> cells(std::int64_t count) {
    std::vector<CellSpec> out;
    for (std::int64_t context = 1; context <= count; ++context) {
      out.push_back({{.shape = {.batch = 1, .context = context}}, {}});
    }
    return out;
  }
  // Each visit takes a second and gives one sample, the number of visits so far.
  CellResult visit(const CellSpec& spec) {
    ++visits_;
    now_ns_ += 1'000'000'000;
    CellResult out;
    out.spec = spec;
    out.samples_ms = {static_cast<double>(visits_)};
    out.visits = {1};
    return out;
  }
  std::vector<std::optional<CellResult>> measure(Driver& driver, std::int64_t count,
                                                 const RoundLimits& limits) {
    return driver.visit_cells<CellResult>(
        "step", cells(count), limits,
        [&](const CellSpec& spec, const StepObserver&) { return visit(spec); });
  }
  static std::size_t measured(const std::vector<std::optional<CellResult>>& results) {
    return static_cast<std::size_t>(
        std::ranges::count_if(results, [](const auto& result) { return result.has_value(); }));
  }
  static std::int64_t clock() { return now_ns_; }

  KeepingDriver driver_;
  int visits_ = 0;
  static inline std::int64_t now_ns_ = 0;
};

TEST_F(DriverTest, WhatIsKnownIsNotMeasuredAgain) {
  const auto first = measure(driver_, 2, {.least = 3, .most = 3});
  EXPECT_EQ(visits_, 6);
  EXPECT_EQ(driver_.rows(), 6u);
  driver_.forget_round(1);
  const auto second = measure(driver_, 2, {.least = 3, .most = 3});
  EXPECT_EQ(visits_, 8);
  ASSERT_EQ(second.at(0)->samples_ms.size(), 3u);
  EXPECT_EQ(second[0]->samples_ms[0], first.at(0)->samples_ms[0]);
  EXPECT_GT(second[0]->samples_ms[1], 6);
  EXPECT_EQ(second[0]->samples_ms[2], first[0]->samples_ms[2]);
}

TEST_F(DriverTest, ALimitedTimeGoesOnWithWhatItLeftOut) {
  const auto within = [&](double seconds) {
    return measure(driver_, 10, {.most = 4, .seconds = seconds, .clock = clock});
  };
  const std::size_t first = measured(within(12));
  EXPECT_GT(first, 0u);
  EXPECT_LT(first, 10u);
  const std::size_t second = measured(within(12));
  EXPECT_GT(second, first);
  within(12);
  EXPECT_EQ(measured(within(12)), 10u);
  visits_ = 0;
  within(12);
  within(12);
  visits_ = 0;
  EXPECT_EQ(measured(within(12)), 10u);
  EXPECT_EQ(visits_, 0) << "every round is known";
}

TEST_F(DriverTest, WhatBelongsToACellIsMadeOnce) {
  int made = 0;
  for (int i = 0; i < 2; ++i) {
    const double value = driver_.besides<double>("roof", Json::Object{{"cell", 1}}, [&] {
      ++made;
      return 2.5;
    });
    EXPECT_EQ(value, 2.5);
  }
  EXPECT_EQ(made, 1);
  Driver forgetful;
  for (int i = 0; i < 2; ++i) {
    forgetful.besides<double>("roof", Json::Object{{"cell", 1}}, [&] {
      ++made;
      return 2.5;
    });
  }
  EXPECT_EQ(made, 3);
}

}  // namespace
}  // namespace tracestep
