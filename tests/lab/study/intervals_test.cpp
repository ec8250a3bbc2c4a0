// A median that was measured is drawn with its interval in every chart of the study.
#include <algorithm>
#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lab/report/chart/chart.h"
#include "lab/report/chart/chart_rows.h"
#include "lab/study/study_run.h"

namespace tracestep {
namespace {

using testing::measured_study;

TEST(IntervalsTest, EveryChartOfMediansHasWhiskers) {
  std::size_t checked = 0;
  const StudyReport& study = measured_study();
  for (const auto* answers : {&study.answers, &study.summary}) {
    for (const Answer& a : *answers) {
      for (const Chart& chart : a.charts) {
        std::vector<std::string> values = names_of(chart, "values");
        if (values.empty()) values = names_of(chart, "y");
        const bool is_median = std::ranges::any_of(
            values, [](const std::string& name) { return name.ends_with("median_ms"); });
        if (!is_median) continue;
        ++checked;
        EXPECT_THAT(draw_chart(chart, study.tables), ::testing::HasSubstr("whisker"))
            << a.id << ": " << chart.table;
      }
    }
  }
  EXPECT_GT(checked, 7u);
}

}  // namespace
}  // namespace tracestep
