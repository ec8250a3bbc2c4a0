// The hand-in: its problems in order, its tables of size against context, times of one's own.
#include "course/hand_in.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "lab/study/study_run.h"
#include "support/temp_folder.h"
#include "support/trace_text.h"

namespace tracestep {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using testing::small_study;

constexpr const char* kTimes =
    "size,context,batch,vocab,mode,precision,mean_ms,std_ms,n\n"
    "small,8,2,32,forward,fp32,160,3,10\n"
    "medium,128,4,10000,forward,fp32,21.4,0.2,10\n"
    "xl,4096,4,10000,step,fp32,900,10,3\n"
    "small,8,4,10000,forward,fp32,160,3,10\n"
    "medium,128,8,10000,forward,fp32,21.4,0.2,10\n";

std::string cell(const Table& table, std::size_t row, std::string_view column) {
  const Json& value = table.rows.at(row).at(table.index_of(column).value());
  return value.is_string() ? value.as_string() : value.dump();
}

TEST(CourseTest, TimesOfOnesOwnStandBesideOursAndPublishedOnesAndTheOthersAreNamed) {
  const std::vector<Table> tables =
      own_times_tables(read_own_times(kTimes, "times.csv"), small_study());
  ASSERT_EQ(tables.size(), 1u);  // no recordings
  const Table& table = tables[0];
  ASSERT_EQ(table.rows.size(), 5u);
  EXPECT_EQ(cell(table, 0, "mine"), "160.0 ± 3.0 ms");
  EXPECT_THAT(cell(table, 0, "ours"), HasSubstr("80.00 ±"));  // as the fixture sets it
  EXPECT_THAT(cell(table, 0, "ratio"), ::testing::StartsWith("2"));
  EXPECT_EQ(cell(table, 1, "ours"), "null");
  EXPECT_THAT(cell(table, 1, "published"), HasSubstr("(B: 5 warm-up steps)"));
  // Of another batch or vocabulary it is another cell, here and published.
  EXPECT_EQ(cell(table, 3, "ours"), "null");
  EXPECT_EQ(cell(table, 4, "published"), "null");
  ASSERT_EQ(table.notes.size(), 4u);
  EXPECT_THAT(table.notes[0], HasSubstr("Batch 4, vocabulary 10000"));
  EXPECT_THAT(table.notes[1], HasSubstr("B: an RTX 5090 with 32 GB"));
  EXPECT_THAT(table.notes[1], HasSubstr("C: an A100-SXM4 with 40 GB"));
  EXPECT_THAT(table.notes[3], HasSubstr("xl 4096 4 10000 step fp32 (line 4)"));
  EXPECT_THAT(table.notes[3], HasSubstr("medium 128 8 10000 forward fp32 (line 6)"));
}

TEST(CourseTest, TimesFarFromOursAreSaidToBeInOtherUnits) {
  const std::vector<Table> tables =
      own_times_tables(read_own_times("size,context,batch,vocab,mode,precision,mean_ms,std_ms,n\n"
                                      "small,8,2,32,forward,fp32,0.16,0,10\n",
                                      "times.csv"),
                       small_study());
  EXPECT_THAT(tables[0].notes, ::testing::Contains(HasSubstr("mean_ms is in milliseconds")));
}

TEST(CourseTest, ARecordingOfOnesOwnGivesItsTimesAndItsKindsOfWork) {
  testing::TraceText text;
  for (int step = 0; step < 3; ++step) {
    const double at = 1000.0 * step;
    text.range("ProfilerStep#" + std::to_string(step), at, at + 900);
    text.op("aten::mm", at + 1, at + 9).launched("sm90_gemm", at + 2, at + 10, at + 610);
    text.op("aten::add", at + 20, at + 30).launched("add_kernel", at + 21, at + 610, at + 910);
  }
  const TempFolder folder;
  folder.write("trace.json", text.text());
  const std::vector<Table> tables =
      own_times_tables(read_own_times("size,context,batch,vocab,mode,precision,trace\n"
                                      "small,8,2,32,forward,fp32,trace.json\n",
                                      folder.path() / "times.csv"),
                       small_study());
  ASSERT_EQ(tables.size(), 2u);
  EXPECT_THAT(cell(tables[0], 0, "mine"), ::testing::StartsWith("967 "));
  EXPECT_EQ(cell(tables[0], 0, "n"), "3");
  EXPECT_THAT(cell(tables[0], 0, "ours"), HasSubstr("80.00 ±"));
  EXPECT_NEAR(std::stod(cell(tables[1], 0, "matrix products_percent")), 62, 2);
  EXPECT_NEAR(std::stod(cell(tables[1], 0, "memory-bound work_percent")), 31, 2);
  EXPECT_EQ(cell(tables[1], 0, "calls"), "2.0");
}

TEST(CourseTest, ACellThatRanOutOfMemoryIsATimeOfOnesOwnToo) {
  const std::vector<Table> tables =
      own_times_tables(read_own_times("size,context,batch,mode,precision,mean_ms,std_ms,n\n"
                                      "2.7B,2048,4,step,fp32,OOM,,\n",
                                      "times.csv"),
                       small_study());
  EXPECT_EQ(cell(tables[0], 0, "mine"), "OOM");
  EXPECT_EQ(cell(tables[0], 0, "n"), "null");
  EXPECT_EQ(cell(tables[0], 0, "ratio"), "null");
}

TEST(CourseTest, AFileOfTimesThatCannotBeReadSaysWhereAndWhy) {
  const auto why = [](const char* csv) {
    try {
      read_own_times(csv, "times.csv");
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  const auto why_row = [&](const std::string& row) {
    return why(("size,context,mode,precision,mean_ms,std_ms,n\n" + row + "\n").c_str());
  };
  EXPECT_THAT(why("size,mean_ms,std_ms,n\nlarge,110,1,5\n"), HasSubstr("no column context"));
  EXPECT_THAT(why("size,context,mode,mean_ms,std_ms,n\nlarge,512,step,110,1,5\n"),
              HasSubstr("no column precision"));
  EXPECT_THAT(why("size,context,mode,precision\n"), HasSubstr("there is no column mean_ms"));
  EXPECT_THAT(why("size,size,context,mode,precision,trace\n"), HasSubstr("two columns size"));
  EXPECT_THAT(why("size,context,mode,precision,mean_ms,std_ms,n\n"), HasSubstr("no times below"));
  EXPECT_THAT(why("size,contexts,context,mode,precision,mean_ms,std_ms,n\n"),
              HasSubstr("contexts is no setting of a run"));
  for (const auto& [row, reason] :
       {std::pair{"small,8,step,fp32,fast,0,1",
                  "times.csv:2] \"fast\" is no mean_ms; write a "
                  "number of milliseconds, or OOM"},
        {"small,8,step,fp32,0x10,0,1", "is no mean_ms"},
        {"small,8,step,fp32,1e300,0,1", "is too much"},
        {"small,8,step,fp32,10,0,0", "\"0\" is no n"},
        {"small,8,step,fp32,10,0,2.6", "\"2.6\" is no n"},
        {"small,8,step,fp32,10,-1,2", "is no std_ms"},
        {"small,8,step,fp32,OOM,3,10", "ran out of memory has std_ms 3"},
        {"small,8,backward,fp32,10,1,5", "write forward-backward"},
        {"small,8,step,float32,10,1,5", "precision: "},
        {"small,8,step,,10,1,5", "there is no precision"},
        {"small,8,step,fp32,10,1,5\nsmall,8,step,fp32,11,1,5",
         "times.csv:3] this is the cell of "
         "line 2 again"},
        {"small,8", "2 cells where the first line has 7"}}) {
    EXPECT_THAT(why_row(row), HasSubstr(reason)) << row;
  }
  EXPECT_THAT(why("size,context,mode,precision,trace\nsmall,8,step,fp32,nowhere.json\n"),
              HasSubstr("nowhere.json"));
  EXPECT_THAT(why("size,context,mode,precision,trace\nsmall,8,step,fp32,\n"),
              HasSubstr("times.csv:2"));
}

TEST(CourseTest, ProblemsStandInOrderWithDeviationsAndWithoutWhatNobodyAsks) {
  const std::string page =
      course_page(small_study(), Json::object(), {}, Format::kMarkdown, "charts");
  std::size_t at = 0;
  for (const char* problem : {"1.1.3 b", "1.1.3 c", "1.1.4 a", "1.1.5", "1.1.5 a", "1.1.6 b",
                              "1.2.1 a", "1.2.2 a", "1.3"}) {
    const std::size_t found = page.find(std::string("## Problem ") + problem + ": ");
    ASSERT_NE(found, std::string::npos) << problem;
    EXPECT_GT(found, at) << problem;
    at = found;
  }
  EXPECT_THAT(page, HasSubstr("## Problem 1.1.4 c: nsys_profile (c)\n"));
  EXPECT_THAT(page, HasSubstr("forward, fp32, fused ops: mean ± deviation, by context"));
  EXPECT_THAT(page, HasSubstr("naive attention, forward, fp32, width by context"));
  EXPECT_THAT(page, HasSubstr("](charts/pass-times.svg)"));
  EXPECT_THAT(page, Not(HasSubstr("![]("))) << "a chart without words for who does not see it";
  EXPECT_THAT(page, HasSubstr("of each time"));
  EXPECT_THAT(page, Not(HasSubstr("Is every time what its label says?")));
  EXPECT_THAT(page, Not(HasSubstr("My times")));
}

}  // namespace
}  // namespace tracestep
