// Profiles of two lanes, and of steps that replay a graph: planted records, and a device that
// captures.
#include "lab/profile/lanes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "analysis/buffer_plan.h"
#include "analysis/cost.h"
#include "ir/parse.h"
#include "lab/profile/chrome_trace.h"
#include "lab/profile/intervals.h"
#include "lab/profile/profiles.h"
#include "lab/profile/tables.h"
#include "ops/functions.h"
#include "support/backends.h"
#include "support/capturing_device.h"
#include "support/tables.h"

namespace tracestep {
namespace {

using testing::cell;

ProfiledCell celled(Profile profile) {
  StepWork work = work_of(profile, {});
  return {std::move(profile), {}, std::move(work)};
}

// In each of three steps, in nanoseconds: lane 0 computes %0 from 1000 to 5000, %3 from 5000 to
// 7000 and %4 from 9500 to 10500; lane 1 sums %0 and %y in one batch, whose one kernel runs from
// 6000 to 9000 and belongs to the batch's last node.
Profile two_lanes() {
  ops::register_all();
  Profile p;
  p.spec.step.model.name = "two";
  p.spec.step.model.layers = 1;
  p.spec.step.parallel.ranks = 2;
  p.device = "by hand";
  p.source = "device profiler";
  p.program = parse_program(R"(program "two lanes" {
  input %x : f32[4]
  input %y : f32[12]
  %0 : f32[4] = exp(%x) @ layers.0.a backward
  %1 : f32[4] = all_reduce(%0) {ranks=2, lane=1, batch=1} @ layers.0.a communication
  %2 : f32[12] = all_reduce(%y) {ranks=2, lane=1, batch=1} @ layers.0.b communication
  %3 : f32[4] = exp(%x) @ layers.0.a backward
  %4 : f32[4] = mul(%1, %3) @ layers.0.a optimizer
  output "y" = %4
  output "z" = %2
})");
  p.turns = plan_buffers(p.program).turns;
  p.plain = {.wall_ms = 0.011, .issue_ms = 0.001, .span_ms = 0.0095};
  p.names = {"exp_kernel", "all_reduce", "mul_kernel"};
  struct Kernel {
    NodeId node;
    std::int32_t name;
    std::int64_t start, end;
  };
  constexpr Kernel kKernels[] = {
      {0, 0, 1000, 5000}, {3, 0, 5000, 7000}, {2, 1, 6000, 9000}, {4, 2, 9500, 10500}};
  for (std::int32_t step : {0, 1, 2}) {
    const std::int64_t at = 20000 * step;
    p.steps.push_back({at, at + 1000, at + 11000, at + 1000, at + 10500});
    for (const Kernel& k : kKernels) {
      const auto activity = static_cast<std::int32_t>(p.trace.activities.size());
      p.launches.push_back({step, k.node, k.name, activity, at + k.start, at + k.end});
      p.trace.activities.push_back({.node = k.node,
                                    .name = k.name,
                                    .start_ns = at + k.start,
                                    .end_ns = at + k.end,
                                    .stream = 7});
    }
  }
  p.trace.names = p.names;
  return p;
}

TEST(IntervalsTest, TheyAreUnitedAndCut) {
  const Intervals a = united({{5, 7}, {0, 2}, {1, 3}, {7, 8}});
  ASSERT_EQ(a.size(), 2u);
  EXPECT_EQ(length_ns(a), 6);
  EXPECT_EQ(common_ns(a, united({{2, 6}})), 2);
  EXPECT_EQ(common_ns(a, a), 6);
  EXPECT_EQ(common_ns(a, {}), 0);
}

TEST(LaneTimesTest, WhatALaneHidesOfTheOtherIsToldApart) {
  const Table t = lane_table(celled(two_lanes()));
  ASSERT_EQ(t.rows.size(), 3u);  // backward and optimizer on lane 0, communication on lane 1
  EXPECT_NEAR(cell(t, "phase", "communication", "ms").as_double(), 0.003, 1e-12);
  EXPECT_NEAR(cell(t, "phase", "communication", "hidden_ms").as_double(), 0.001, 1e-12);
  EXPECT_NEAR(cell(t, "phase", "communication", "exposed_ms").as_double(), 0.002, 1e-12);
  EXPECT_NEAR(cell(t, "phase", "backward", "hidden_ms").as_double(), 0.001, 1e-12);
  EXPECT_NEAR(cell(t, "phase", "optimizer", "exposed_ms").as_double(), 0.001, 1e-12);
  EXPECT_TRUE(lane_table(celled(testing::traced_profile())).rows.empty());
}

TEST(LaneTimesTest, TheClocksCountEachMomentOnce) {
  const ProfiledCell cells[] = {celled(two_lanes())};
  const StepWork& work = cells[0].work;
  EXPECT_NEAR(work.kernels_ms, 0.010, 1e-12);
  EXPECT_NEAR(work.busy_ms, 0.009, 1e-12);
  EXPECT_NEAR(work.busy_ms + work.gaps_ms, work.span_ms, 1e-12);
  const Table t = clock_table(cells);
  EXPECT_NEAR(cell(t, "size", "two", "busy_ms").as_double(), 0.009, 1e-12);
  EXPECT_NEAR(cell(t, "size", "two", "communication_ms").as_double(), 0.003, 1e-12);
  EXPECT_NEAR(cell(t, "size", "two", "exposed_ms").as_double(), 0.002, 1e-12);
  EXPECT_NEAR(cell(t, "size", "two", "identity_error_ms").as_double(), 0.0, 1e-12);
  const ProfiledCell alone[] = {celled(testing::traced_profile())};
  EXPECT_TRUE(cell(clock_table(alone), "size", "two", "exposed_ms").is_null());
}

// Spans are of kernels that each run alone.
TEST(LaneTimesTest, BySpansExposedIsWhatTheStepIsLongerThanAllOtherKernels) {
  Profile p = two_lanes();
  for (ProfiledLaunch& l : p.launches) l.activity = -1;
  const auto communication = communication_of(p);
  ASSERT_TRUE(communication);
  EXPECT_NEAR(communication->ms, 0.003, 1e-12);
  EXPECT_NEAR(communication->exposed_ms, 0.0095 - 0.007, 1e-12);
  EXPECT_TRUE(lane_times(p).empty());
}

TEST(LaneTimesTest, AHeldUpCollectiveCountsWithItsMedian) {
  Profile p = two_lanes();
  p.launches.back().start_ns += 6000;  // the optimizer of the third step, behind the collective
  p.launches.back().end_ns += 6000;
  p.launches[p.launches.size() - 2].end_ns += 6000;
  EXPECT_NEAR(communication_of(p)->ms, 0.003, 1e-12);
  EXPECT_NEAR(communication_of(p)->exposed_ms, 0.002, 1e-12);
  EXPECT_NEAR(busy_ms_by_step(p)[2], 0.015, 1e-12);
}

TEST(LaneTimesTest, TheCheckerSaysThatKernelsOverlap) {
  const auto codes = [](Profile p) {
    std::vector<std::string> out;
    const auto verdicts = judge_profiles(std::vector{celled(std::move(p))})[0];
    for (const Verdict& v : verdicts) out.push_back(v.code);
    return out;
  };
  EXPECT_THAT(codes(two_lanes()), ::testing::Contains("overlapping_kernels"));
  EXPECT_THAT(codes(testing::traced_profile()),
              ::testing::Not(::testing::Contains("overlapping_kernels")));
}

TEST(LaneTimesTest, SharesAddUpToTheSpanWithTheOverlapTakenOff) {
  const Table t = matrix_table(celled(two_lanes()));
  double percent = -cell(t, "component", "total", "share_percent").as_double();
  const auto share = std::ranges::find(t.columns, "share_percent", &Column::name);
  for (const auto& row : t.rows) {
    percent += row[static_cast<std::size_t>(share - t.columns.begin())].as_double();
  }
  EXPECT_NEAR(percent, 100.0, 1e-9);
  EXPECT_NEAR(cell(t, "component", "overlap", "ms").as_double(), -0.001, 1e-12);
}

TEST(BatchTest, ItsKernelStandsForAllItsNodesAndIsSharedOutByTheirBytes) {
  const ProfiledCell cells[] = {celled(two_lanes())};
  std::map<std::string, double> ms;  // of the batch's kernel, 0.003
  for (const Work& w : cells[0].work.rows) {
    if (w.op == "all_reduce") ms[w.component] += w.sums.ms;
  }
  EXPECT_NEAR(ms["a"], 0.00075, 1e-12);
  EXPECT_NEAR(ms["b"], 0.00225, 1e-12);
  const Table check = launch_check_table(cells);
  const Json nodes = "all nodes that are no views";
  EXPECT_EQ(cell(check, "what", nodes, "ran").as_int(), 5);
  EXPECT_EQ(cell(check, "what", nodes, "verdict").as_string(), "ok");
}

TEST(LaneTraceTest, EachLaneHasATrackWhateverStreamsItsKernelsTook) {
  const Json trace = Json::parse(chrome_trace(two_lanes(), Json::object()), "trace");
  std::map<std::string, std::set<std::int64_t>> tracks;  // by kernel
  for (const Json& e : trace.at("traceEvents").items()) {
    const Json* category = e.find("cat");
    if (category == nullptr || category->as_string() != "kernel") continue;
    tracks[e.at("name").as_string()].insert(e.at("tid").as_int());
  }
  EXPECT_EQ(tracks["exp_kernel"], (std::set<std::int64_t>{7}));
  EXPECT_EQ(tracks["mul_kernel"], (std::set<std::int64_t>{7}));
  EXPECT_EQ(tracks["all_reduce"], (std::set<std::int64_t>{8}));
}

class ReplayProfileTest : public ::testing::Test {
 protected:
  void SetUp() override { ops::register_all(); }
  static ProfiledCell run(bool follows_captures) {
    ProfileSpec spec = testing::tiny_profile(Mode::kStep);
    spec.step.executor = ExecutorKind::kCompiled;
    return celled(profile_step(
        [&](const RunSpec&) {
          auto device =
              std::make_unique<testing::CapturingDevice>(testing::backend_named("cpu").make({}));
          device->follows_captures = follows_captures;
          return device;
        },
        spec));
  }
  static const Json kKernels;
};
const Json ReplayProfileTest::kKernels = "kernels of a step";

TEST_F(ReplayProfileTest, EveryKernelOfAReplayBelongsToItsNode) {
  const ProfiledCell cells[] = {run(true)};
  const ProfiledCell& c = cells[0];
  EXPECT_EQ(c.profile.source, "device profiler inside a graph");
  int failures = -1;
  const Table t = launch_check_table(cells, &failures);
  EXPECT_EQ(failures, 0);
  EXPECT_EQ(cell(t, "what", kKernels, "ran").as_int(), launch_count(c.profile.program));
  double sum_ms = c.work.gaps_ms;
  for (const Work& w : c.work.rows) sum_ms += w.sums.ms;
  EXPECT_NEAR(sum_ms / c.work.span_ms, 1.0, 1e-9);
  EXPECT_TRUE(c.profile.memory_events.empty());
}

TEST_F(ReplayProfileTest, AKernelThatIsMissingInOneStepIsFound) {
  ProfiledCell cells[] = {run(true)};
  auto& launches = cells[0].profile.launches;
  launches.pop_back();
  int failures = 0;
  const Table t = launch_check_table(cells, &failures);
  EXPECT_GE(failures, 2);
  EXPECT_EQ(cell(t, "what", kKernels, "verdict").as_string(), "differs");
}

TEST_F(ReplayProfileTest, AProfilerThatCannotFollowAGraphGetsItsLaunchesOneByOne) {
  const ProfiledCell cells[] = {run(false)};
  EXPECT_EQ(cells[0].profile.source, "device profiler");
  EXPECT_FALSE(cells[0].profile.graph_kernels);
  EXPECT_FALSE(cells[0].profile.memory_events.empty());
  int failures = -1;
  launch_check_table(cells, &failures);
  EXPECT_EQ(failures, 0);
}

}  // namespace
}  // namespace tracestep
