// tracestep read as a person uses it: files as PyTorch writes them, and files that are none.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json.h"
#include "cli/run_binary.h"
#include "lab/report/html.h"
#include "support/temp_folder.h"
#include "support/trace_text.h"

namespace tracestep {
namespace {

using ::testing::HasSubstr;

testing::TraceText late_steps(int steps, double late) {
  testing::TraceText t;
  for (int s = 0; s < steps; ++s) {
    const double at = 200.0 * s;
    t.range("ProfilerStep#" + std::to_string(s), at, at + 200);
    t.module("GPT_0", at + 1, at + 60).op("aten::mm", at + 2, at + 9);
    t.launched("sm90_gemm", at + 3, at + 8, at + 58);
    t.op("aten::add", at + 60 + late, at + 65 + late);
    t.launched("add_kernel", at + 61 + late, at + 66 + late, at + 96 + late + 0.1 * (s % 3));
  }
  return t;
}

class ReadTest : public ::testing::Test {
 protected:
  ProgramRun run(const std::string& words) const {
    return run_tracestep(words_of("read " + words), {.folder = folder_.path()});
  }
  TempFolder folder_;
};

TEST_F(ReadTest, ATraceIsAnsweredFirstAndThenItsTables) {
  folder_.write("trace.json", late_steps(6, 40).text());
  const ProgramRun shown = run("trace.json");
  ASSERT_EQ(shown.status, 0) << shown.err;
  EXPECT_THAT(shown.out, ::testing::StartsWith("Launch-bound: in "));
  EXPECT_THAT(run("trace.json --tables kernels").out, HasSubstr("sm90_gemm"));
  EXPECT_THAT(run("trace.json --host-ops --tables ops").out, HasSubstr("aten::mm"));
}

TEST_F(ReadTest, TwoTracesAreHeldAgainstEachOther) {
  folder_.write("a.json", late_steps(12, 40).text());
  folder_.write("b.json", late_steps(12, 60).text());
  const ProgramRun shown = run("a.json b.json");
  ASSERT_EQ(shown.status, 0) << shown.err;
  EXPECT_THAT(shown.out, HasSubstr("the largest change is"));
  EXPECT_THAT(shown.out, HasSubstr("gaps"));
  const ProgramRun same =
      run_tracestep(words_of("compare a.json b.json"), {.folder = folder_.path()});
  EXPECT_EQ(same.out, shown.out) << same.err;
  EXPECT_THAT(run("a.json a.csv").err, HasSubstr("a.csv"));
}

TEST_F(ReadTest, AFolderHoldsTheTracesOfRanks) {
  folder_.write("ranks/r0.json", late_steps(2, 1).text());
  folder_.write("ranks/r1.json", late_steps(2, 1).text());
  const ProgramRun same = run("ranks");
  EXPECT_EQ(same.status, 3);
  EXPECT_THAT(same.err, HasSubstr("not of several ranks"));
  for (int r = 0; r < 2; ++r) {
    testing::TraceText t = late_steps(2, 1);
    t.member(fmt::format(R"("distributedInfo": {{"rank": {}, "world_size": 2}})", r));
    t.launched("ncclDevKernel_AllReduce", 110, 120 + 10.0 * r, 180);
    folder_.write(fmt::format("ranks/r{}.json", r), t.text());
  }
  const ProgramRun shown = run("ranks");
  ASSERT_EQ(shown.status, 0) << shown.err;
  EXPECT_THAT(shown.out, ::testing::StartsWith("Rank 1 comes last in 100.0 % of the collectives"));
}

TEST_F(ReadTest, APageHasTheStepAndTheTablesAndAsksNothingOfANetwork) {
  folder_.write("trace.json", late_steps(6, 40).text());
  ASSERT_EQ(run("trace.json --output page.html").status, 0);
  std::string page = content_of(folder_.path() / "page.html");
  EXPECT_THAT(page, HasSubstr("data-kind=\"work\" data-table=\"step\""));
  EXPECT_THAT(page, HasSubstr("Launch-bound: in "));
  EXPECT_THAT(page, HasSubstr("default-src 'none'"));
  EXPECT_THAT(page, ::testing::Not(HasSubstr("https:")));
  const Json step = result_of_page(page, "page").at("tables").at("step");
  ASSERT_EQ(step.at("rows").items().size(), 2u);
  EXPECT_EQ(step.at("rows").items()[0].at("kernel").as_string(), "sm90_gemm");
  ASSERT_EQ(
      run_tracestep(
          words_of("memory --size tiny --batch 1 --context 16 --mode step --snapshot s.pickle"),
          {.folder = folder_.path()})
          .status,
      0);
  ASSERT_EQ(run("s.pickle --output held.html").status, 0);
  EXPECT_THAT(content_of(folder_.path() / "held.html"), HasSubstr("data-kind=\"timeline\""));
}

// Our own snapshot of a step stands for one of PyTorch: then both sides peak at the same bytes.
TEST_F(ReadTest, ASnapshotStandsBesideOurProgramOfTheModel) {
  const std::string model =
      "--size tiny --batch 2 --context 64 --vocab 256 --attention naive --device cpu "
      "--precision fp32 --executor eager";
  const ProgramRun made = run_tracestep(words_of("memory --mode step --snapshot s.pickle " + model),
                                        {.folder = folder_.path()});
  ASSERT_EQ(made.status, 0) << made.err;
  const ProgramRun shown = run("s.pickle --tables beside_memory --format json " + model);
  ASSERT_EQ(shown.status, 0) << shown.err;
  const Json result = Json::parse(shown.out, "beside");
  const Json& peak = result.at("rows").items().at(0);
  EXPECT_EQ(peak.at("theirs_bytes").as_int(), peak.at("ours_bytes").as_int()) << peak.dump();
  EXPECT_GT(peak.at("ours_bytes").as_int(), 1 << 20);
}

TEST_F(ReadTest, ATraceStandsBesideOurProgramOfTheModel) {
  folder_.write("trace.json", late_steps(6, 40).text());
  const ProgramRun shown = run("trace.json --size tiny --batch 2 --context 64 --published h100");
  ASSERT_EQ(shown.status, 0) << shown.err;
  EXPECT_THAT(shown.out, HasSubstr("our program"));
  EXPECT_THAT(run("trace.json trace.json --size tiny").err, HasSubstr("three sides"));
}

TEST_F(ReadTest, WhatIsNoRecordingIsRefusedByWhatItIs) {
  folder_.write("bench.csv", "size,ms\nsmall,1\n");
  folder_.write("report.sqlite", "SQLite format 3");
  folder_.write("empty.json", "");
  EXPECT_EQ(run("bench.csv").status, 3);
  EXPECT_THAT(run("report.sqlite").err, HasSubstr("Nsight Systems"));
  EXPECT_THAT(run("empty.json").err, HasSubstr("it is empty"));
  EXPECT_EQ(run("missing.json").status, 3);
}

}  // namespace
}  // namespace tracestep
