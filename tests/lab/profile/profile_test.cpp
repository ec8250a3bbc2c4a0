#include "lab/profile/run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "analysis/cost.h"
#include "base/error.h"
#include "ir/parse.h"
#include "lab/profile/profiles.h"
#include "lab/profile/tables.h"
#include "ops/functions.h"
#include "passes/pipeline.h"
#include "support/backends.h"
#include "support/random_step.h"
#include "support/tables.h"

namespace tracestep {
namespace {

using testing::cell;

ProfiledCell celled(Profile profile, Ceilings ceilings = {}) {
  StepWork work = work_of(profile, ceilings);
  return {std::move(profile), std::move(ceilings), std::move(work)};
}

// 1 GFLOP/s and 1 GB/s: one operation or byte takes one nanosecond.
Ceilings one_per_ns() {
  return {.bandwidth_gb_s = 1, .arithmetic_gflops = 1, .products_gflops = {{DType::kF32, 1}}};
}

TEST(ProfileTablesTest, TheMatrixAddsUpToTheSpanWithItsGaps) {
  const ProfiledCell c = celled(testing::two_kernel_profile());
  EXPECT_NEAR(c.work.span_ms, 0.006, 1e-12);
  EXPECT_NEAR(c.work.busy_ms, 0.005, 1e-12);
  EXPECT_NEAR(c.work.gaps_ms, 0.001, 1e-12);
  const Table t = matrix_table(c);
  EXPECT_NEAR(cell(t, "component", "ffn.w1", "share_percent").as_double(), 400.0 / 6, 1e-9);
  EXPECT_NEAR(cell(t, "component", "ffn.residual", "share_percent").as_double(), 100.0 / 6, 1e-9);
  EXPECT_NEAR(cell(t, "component", "ffn.residual", "gap_ms").as_double(), 0.001, 1e-12);
  EXPECT_NEAR(cell(t, "component", "gaps", "share_percent").as_double(), 100.0 / 6, 1e-9);
  EXPECT_NEAR(cell(t, "component", "total", "share_percent").as_double(), 100.0, 1e-9);
}

TEST(ProfileTablesTest, TheFirstListHasThePlacesByTheirTimeAndItsShare) {
  const Table t = top_table(celled(testing::two_kernel_profile()));
  ASSERT_EQ(t.rows.size(), 2u);
  EXPECT_EQ(t.rows[0][0], Json("ffn.w1"));
  EXPECT_NEAR(cell(t, "part", "ffn.w1", "share_percent").as_double(), 80.0, 1e-9);
  EXPECT_NEAR(cell(t, "part", "ffn.residual", "ms").as_double(), 0.001, 1e-12);
  EXPECT_NEAR(cell(t, "part", "ffn.residual", "launches").as_double(), 1, 1e-12);
}

TEST(ProfileTablesTest, RooflinesComeFromTheProgramsFlopsAndBytes) {
  const ProfiledCell c = celled(testing::two_kernel_profile(), one_per_ns());
  const Table t = matrix_table(c);
  // The product: 2·4·16·8 operations; 4 (4·8 + 16·8 + 4·16) bytes, which is less.
  EXPECT_EQ(cell(t, "component", "ffn.w1", "flops").as_double(), 1024);
  EXPECT_EQ(cell(t, "component", "ffn.w1", "bytes").as_double(), 896);
  EXPECT_EQ(cell(t, "component", "ffn.w1", "bound").as_string(), "FLOPs");
  EXPECT_NEAR(cell(t, "component", "ffn.w1", "roof_percent").as_double(), 100 * 1024.0 / 4000,
              1e-9);
  // The sum: 64 operations, 64·4 bytes read twice as two operands and written once.
  EXPECT_EQ(cell(t, "component", "ffn.residual", "bound").as_string(), "bytes");
  EXPECT_EQ(cell(t, "component", "ffn.residual", "bytes").as_double(), 3 * 256);
}

// The rates of the whole step are over its time, not over that of its kernels.
TEST(ProfileTablesTest, TheTotalHasTheRatesOfItsOwnTime) {
  const ProfiledCell c = celled(testing::two_kernel_profile(), one_per_ns());
  const Table t = matrix_table(c);
  EXPECT_NEAR(cell(t, "component", "total", "gflops").as_double(),
              cell(t, "component", "total", "flops").as_double() * 1e-6 /
                  cell(t, "component", "total", "ms").as_double(),
              1e-9);
}

TEST(ProfileTablesTest, AKernelAboveItsRoofIsExplainedBelowTheTable) {
  using ::testing::Contains;
  using ::testing::HasSubstr;
  using ::testing::Not;
  const ProfiledCell slow = celled(testing::two_kernel_profile(), one_per_ns());
  Ceilings low = one_per_ns();
  low.bandwidth_gb_s = 0.1;
  const ProfiledCell fast = celled(testing::two_kernel_profile(), low);
  for (Table (*table_of)(const ProfiledCell&, const ComponentFilter&) :
       {matrix_table, kernel_table, kind_table}) {
    EXPECT_THAT(table_of(fast, {}).notes, Contains(HasSubstr("above 100 %")));
    EXPECT_THAT(table_of(slow, {}).notes, Not(Contains(HasSubstr("above 100 %"))));
  }
}

TEST(ProfileTablesTest, WhatAKernelAboveItsRoofMeansIsByWhatItsRoofIsOf) {
  using ::testing::Contains;
  using ::testing::HasSubstr;
  using ::testing::Not;
  const auto notes = [](Ceilings ceilings, Granularity ops) {
    Profile profile = testing::two_kernel_profile();
    profile.spec.step.ops = ops;
    return matrix_table(celled(std::move(profile), ceilings)).notes;
  };
  Ceilings slow_copy = one_per_ns(), slow_products = one_per_ns();
  slow_copy.bandwidth_gb_s = 0.1;
  for (auto& [dtype, gflops] : slow_products.products_gflops) gflops = 0.1;
  const auto by_bytes = notes(slow_copy, Granularity::kPrimitive);
  EXPECT_THAT(by_bytes, Contains(HasSubstr("the data came from a cache")));
  EXPECT_THAT(by_bytes, Not(Contains(HasSubstr("mask"))));
  EXPECT_THAT(by_bytes, Not(Contains(HasSubstr("for FLOPs"))));
  EXPECT_THAT(notes(slow_copy, Granularity::kFused), Contains(HasSubstr("a mask hides some")));
  const auto by_flops = notes(slow_products, Granularity::kPrimitive);
  EXPECT_THAT(by_flops, Contains(HasSubstr("above 100 % it was measured too low")));
  EXPECT_THAT(by_flops, Not(Contains(HasSubstr("cache"))));
}

TEST(ProfileTablesTest, KernelsStandUnderTheColumnNamesOfNsys) {
  const Table t = kernel_table(celled(testing::two_kernel_profile()));
  const char* const names[] = {"Time (%)", "Total Time (ns)", "Instances",   "Avg (ns)", "Med (ns)",
                               "Min (ns)", "Max (ns)",        "StdDev (ns)", "Name"};
  for (std::size_t i = 0; i < std::size(names); ++i) EXPECT_EQ(t.columns[i].name, names[i]);
  EXPECT_NEAR(cell(t, "Name", "matmul f32", "Time (%)").as_double(), 80.0, 1e-9);
  EXPECT_EQ(cell(t, "Name", "matmul f32", "Total Time (ns)").as_int(), 8000);
  EXPECT_EQ(cell(t, "Name", "matmul f32", "Instances").as_int(), 2);
  EXPECT_EQ(cell(t, "Name", "matmul f32", "per_step").as_double(), 1);
  EXPECT_EQ(cell(t, "Name", "matmul f32", "class").as_string(), "matrix product");
}

TEST(ProfileTablesTest, FlopsOfANodeWithSeveralKernelsStandAtTheLongest) {
  const ProfiledCell c = celled(testing::traced_profile());
  const Table t = matrix_table(c);
  EXPECT_EQ(cell(t, "kernel", "void split_gemm<float, 2>(float*)", "flops").as_double(), 1024);
  EXPECT_EQ(cell(t, "kernel", "reduce_splits", "flops").as_double(), 0);
  EXPECT_EQ(cell(t, "kernel", "reduce_splits", "class").as_string(), "matrix product");
  EXPECT_NEAR(c.work.busy_ms, 0.005, 1e-12);
}

TEST(ProfileTablesTest, KernelsThatOverlapAreToldApartFromTheSpan) {
  Profile p = testing::two_kernel_profile();
  for (ProfiledLaunch& l : p.launches) {
    if (l.node == 1) l.start_ns -= 1500;  // half a microsecond before the product ends
  }
  const ProfiledCell c = celled(std::move(p));
  EXPECT_NEAR(c.work.overlap_ms, 0.0005, 1e-12);
  EXPECT_NEAR(c.work.kernels_ms, c.work.busy_ms + c.work.overlap_ms, 1e-12);
  EXPECT_NEAR(c.work.busy_ms + c.work.gaps_ms, c.work.span_ms, 1e-12);
}

TEST(ProfileTablesTest, ClocksAreOneIdentity) {
  const ProfiledCell cells[] = {celled(testing::traced_profile())};
  const Table t = clock_table(cells);
  EXPECT_NEAR(cell(t, "size", "two", "wall_ms").as_double(), 0.010, 1e-12);
  EXPECT_NEAR(cell(t, "size", "two", "recorded_outside_ms").as_double(), 0.004, 1e-12);
  EXPECT_NEAR(cell(t, "size", "two", "identity_error_ms").as_double(), 0.0, 1e-12);
  EXPECT_NEAR(cell(t, "size", "two", "cost_percent").as_double(), 25.0, 1e-9);
  // A clock of its own only where kernels do not run inside the calls.
  Profile p = testing::traced_profile();
  p.plain.issue_ms = 0.001;
  for (bool is_asynchronous : {false, true}) {
    p.is_asynchronous = is_asynchronous;
    const ProfiledCell one[] = {celled(p)};
    EXPECT_EQ(cell(clock_table(one), "size", "two", "plain_issue_ms").is_null(), !is_asynchronous);
  }
}

TEST(ProfileTablesTest, GapsAreThoseOfPlainStepsWithWhatRecordingAddsBesideThem) {
  Profile p = testing::two_kernel_profile();
  p.plain.span_ms = 0.0052;  // recorded: 6 microseconds, 5 of them busy
  const ProfiledCell cells[] = {celled(std::move(p))};
  const Table matrix = matrix_table(cells[0]), clocks = clock_table(cells);
  EXPECT_NEAR(cell(matrix, "component", "gaps", "ms").as_double(), 0.0002, 1e-12);
  EXPECT_NEAR(cell(matrix, "component", "gaps", "recorded_ms").as_double(), 0.001, 1e-12);
  EXPECT_NEAR(cell(matrix, "component", "total", "ms").as_double(), 0.0052, 1e-12);
  EXPECT_NEAR(cell(matrix, "component", "total", "recorded_ms").as_double(), 0.006, 1e-12);
  EXPECT_NEAR(cell(clocks, "size", "two", "gaps_ms").as_double(), 0.0002, 1e-12);
  EXPECT_NEAR(cell(clocks, "size", "two", "recorded_gaps_ms").as_double(), 0.001, 1e-12);
}

TEST(ProfileTablesTest, SharesAreOfTheKernelsWhereThoseTakeLongerThanTheSpan) {
  Profile p = testing::two_kernel_profile();
  p.plain.span_ms = 0.004;  // recorded kernels: 5 microseconds
  const Table matrix = matrix_table(celled(std::move(p)));
  EXPECT_NEAR(cell(matrix, "component", "ffn.w1", "share_percent").as_double(), 80.0, 1e-9);
  EXPECT_TRUE(cell(matrix, "component", "gaps", "share_percent").is_null());
  EXPECT_TRUE(cell(matrix, "component", "total", "share_percent").is_null());
  EXPECT_NEAR(cell(matrix, "component", "total", "ms").as_double(), 0.004, 1e-12);
}

// The verdict of the first of these cells, by each table that has one.
std::string verdict_of(std::span<const ProfiledCell> cells) {
  const std::string clocks = cell(clock_table(cells), "size", "two", "verdict").as_string();
  EXPECT_EQ(cell(pass_table(cells), "size", "two", "verdict").as_string(), clocks);
  return clocks;
}

// The two kernels as three recorded steps, all alike.
Profile steady_profile() {
  Profile p = testing::two_kernel_profile();
  for (int node : {0, 1}) {
    ProfiledLaunch launch = p.launches[static_cast<std::size_t>(node)];
    launch.step = 2;
    p.launches.push_back(launch);
  }
  p.steps.push_back(p.steps.front());
  p.plain = {.wall_ms = 0.00995, .issue_ms = 0.002, .span_ms = 0.006};
  return p;
}

TEST(ProfileVerdictsTest, ASteadyProfileIsLeftAlone) {
  const ProfiledCell cells[] = {celled(steady_profile(), one_per_ns())};
  EXPECT_EQ(verdict_of(cells), "note: launch_bound");  // busy for half of the wall
}

TEST(ProfileVerdictsTest, ProductsThatGrowManyTimesMoreThanTheirWorkAreDoubted) {
  ProfiledCell cells[] = {celled(steady_profile()), celled(steady_profile())};
  cells[1].profile.spec.step.mode = Mode::kStep;
  for (ProfiledLaunch& l : cells[1].profile.launches) {
    if (l.node == 0) l.end_ns += 326 * l.duration_ns();
  }
  cells[1].work = work_of(cells[1].profile, {});
  const auto verdicts = judge_profiles(cells)[1];
  EXPECT_EQ(std::ranges::count(verdicts, "collapsed_speed", &Verdict::code), 1);
}

TEST(ProfileVerdictsTest, StepsThatDisagreeWithPlainOnesOrEachOtherAreDoubted) {
  ProfiledCell cells[] = {celled(steady_profile())};
  Profile& p = cells[0].profile;
  p.plain.wall_ms = p.plain.span_ms = 0.0022;  // busy for 226 % of it
  EXPECT_EQ(verdict_of(cells), "doubt: recorded_apart");
  p.plain = {.wall_ms = 0.2, .issue_ms = 0.002, .span_ms = 0.2};  // recording "costs" -95 %
  EXPECT_EQ(verdict_of(cells), "doubt: recorded_apart");
  cells[0] = celled(steady_profile());
  cells[0].profile.launches.back().end_ns += 4000;
  EXPECT_EQ(verdict_of(cells), "doubt: recorded_unsteady");
  cells[0] = celled(testing::two_kernel_profile());
  EXPECT_EQ(verdict_of(cells), "doubt: recorded_unsteady");  // two steps only
}

// A product of 4 µs took 16 µs in one of three steps: its row, shares and order are not moved.
TEST(ProfileVerdictsTest, ALaunchThatOtherWorkHeldUpMovesNoShare) {
  Profile p = steady_profile();
  p.launches[0].end_ns += 12000;
  p.launches[1].start_ns += 12000;
  p.launches[1].end_ns += 12000;
  p.steps[0].last_ns += 12000;
  const ProfiledCell c = celled(std::move(p));
  EXPECT_NEAR(c.work.busy_ms, 0.005, 1e-12);
  EXPECT_NEAR(c.work.interrupted_ms, 0.004, 1e-12);  // of each of three steps
  EXPECT_NEAR(c.work.busy_ms + c.work.interrupted_ms + c.work.gaps_ms, c.work.span_ms, 1e-12);
  const Table matrix = matrix_table(c), kernels = kernel_table(c);
  EXPECT_NEAR(cell(matrix, "component", "ffn.w1", "share_percent").as_double(), 400.0 / 6, 1e-9);
  EXPECT_NEAR(cell(kernels, "Name", "matmul f32", "Time (%)").as_double(), 100 * 24.0 / 27, 1e-9);
  const auto verdicts = judge_profiles(std::vector{c})[0];
  const auto found = std::ranges::find(verdicts, "uneven_instances", &Verdict::code);
  ASSERT_NE(found, verdicts.end());
  EXPECT_EQ(found->severity, Severity::kDoubt);  // as long as four fifths of the kernels
  EXPECT_NE(found->text.find("80 % of the kernels' time"), std::string::npos) << found->text;
}

TEST(ProfileVerdictsTest, KernelsFarAboveTheirRoofAreDoubted) {
  Ceilings low = one_per_ns();
  low.arithmetic_gflops = low.products_gflops[DType::kF32] = 0.06;  // the product reaches 0.256
  const ProfiledCell cells[] = {celled(steady_profile(), low)};
  const auto verdicts = judge_profiles(cells)[0];
  const auto found = std::ranges::find(verdicts, "above_the_roof", &Verdict::code);
  ASSERT_NE(found, verdicts.end());
  EXPECT_EQ(found->severity, Severity::kInvalid);
  EXPECT_NE(found->text.find("matmul of ffn.w1, forward is at 427 % of its roof"),
            std::string::npos)
      << found->text;
}

// A kernel above its roof is reported alike whether it takes little of the time or much; a kernel
// that takes hardly any is not.
TEST(ProfileVerdictsTest, AKernelWithLittleOfTheTimeIsNotedWhereCachesExplainIt) {
  const auto code_with = [](double bytes, double busy_ms) {
    ProfiledCell c = celled(steady_profile(), one_per_ns());
    for (Work& w : c.work.rows) w.sums.roof_ms = 0;
    Work& small = c.work.rows.front();
    small.sums.bytes = bytes * small.sums.launches;
    small.sums.roof_ms = 1.3 * small.sums.ms;
    small.sums.roof_by_bytes_ms = small.sums.roof_ms;
    c.work.busy_ms = busy_ms * small.sums.ms;
    const auto verdicts = judge_profiles(std::vector{c})[0];
    for (const Verdict& v : verdicts) {
      if (v.code == "above_the_roof") return v.severity == Severity::kNote ? "note" : "doubt";
    }
    return "nothing";
  };
  EXPECT_STREQ(code_with(1e6, 10), "note");
  EXPECT_STREQ(code_with(1e6, 300), "note");
  EXPECT_STREQ(code_with(1e6, 3000), "nothing");
  EXPECT_STREQ(code_with(1e10, 10), "doubt");
  EXPECT_STREQ(code_with(1e10, 300), "nothing");  // too short to judge a ceiling by
}

TEST(ProfileTablesTest, AnUnknownComponentIsAnErrorThatNamesTheNearest) {
  const Program program = testing::two_kernel_profile().program;
  const ComponentFilter filter("--components", {"ffn"}, program);
  EXPECT_TRUE(filter.has("ffn.w1"));
  EXPECT_FALSE(filter.has("ffnx"));
  try {
    const ComponentFilter wrong("--components", {"ffn.w11"}, program);
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("ffn.w1"), std::string::npos);
  }
}

class ProfileTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { ops::register_all(); }
  static ProfiledCell run(Mode mode, Granularity ops, bool use_tracer = true) {
    ProfileSpec spec = testing::tiny_profile(mode, ops);
    spec.use_tracer = use_tracer;
    return run(spec);
  }
  static ProfiledCell run(const ProfileSpec& spec) {
    return celled(profile_step(
        [](const RunSpec&) { return testing::backend_named(GetParam()).make({}); }, spec));
  }
};
INSTANTIATE_TEST_SUITE_P(Devices, ProfileTest, ::testing::ValuesIn(testing::backend_names()));

// Merged products count as those that they stand for, and the last one once for each chunk.
TEST_P(ProfileTest, WhatRanOfACompiledStepIsWhatTheProgramSays) {
  for (Mode mode : kAll<Mode>) {
    for (std::int64_t chunks : {1, 4}) {
      ProfileSpec spec = testing::tiny_profile(mode, Granularity::kFused);
      spec.step.executor = ExecutorKind::kCompiled;
      spec.step.loss_chunks = chunks;
      const ProfiledCell cells[] = {run(spec)};
      int failures = -1;
      const Table t = launch_check_table(cells, &failures);
      EXPECT_EQ(failures, 0) << name_of(mode) << " " << chunks;
      const bool has_profiler = GetParam() == "cuda" && cells[0].profile.problem.empty();
      EXPECT_EQ(cells[0].profile.graph_kernels.has_value(), has_profiler);
      const std::int64_t products = mode == Mode::kInference ? 1 : chunks;
      EXPECT_EQ(cell(t, "what", "weight products, forward", "ran").as_int(), 7 * 2 + products);
    }
  }
}

TEST_P(ProfileTest, ProductsAreCountedRightAfterEverySetOfPasses) {
  const std::vector<std::string> passes{"merge", "epilogue", "join", "overwrite"};
  for (unsigned set = 0; set < 1U << passes.size(); ++set) {
    ProfileSpec spec = testing::tiny_profile(Mode::kStep, Granularity::kFused);
    spec.step.compile_passes.emplace();
    for (std::size_t i = 0; i < passes.size(); ++i) {
      if ((set >> i & 1U) != 0) spec.step.compile_passes->insert(passes[i]);
    }
    const ProfiledCell cells[] = {run(spec)};
    int failures = -1;
    launch_check_table(cells, &failures);
    EXPECT_EQ(failures, 0) << ::testing::PrintToString(*spec.step.compile_passes);
  }
}

// A check that finds a mistake in valid options says nothing where there is one.
TEST_P(ProfileTest, NoOptionsAtRandomAreTakenForAMistake) {
  constexpr std::uint64_t kProfiles = 120;
  int checked = 0;
  for (std::uint64_t seed = 1; seed <= kProfiles; ++seed) {
    testing::Dice dice(seed);
    ProfileSpec spec = testing::tiny_profile(Mode::kStep);
    spec.step = testing::random_step(dice, testing::random_small_model(dice));
    if (GetParam() != "cpu") spec.step.parallel = {};  // there is one device
    try {
      const ProfiledCell cells[] = {run(spec)};
      int failures = -1;
      launch_check_table(cells, &failures);
      EXPECT_EQ(failures, 0) << "seed " << seed << ": " << testing::text_of_step(spec.step);
      ++checked;
    } catch (const Error& error) {  // options that exclude each other, or that the device lacks
      EXPECT_EQ(error.code(), ErrorCode::kUsage) << error.what();
    }
  }
  EXPECT_GT(checked, static_cast<int>(kProfiles) / 5);
}

TEST_P(ProfileTest, WhatRanIsWhatTheProgramSays) {
  for (Mode mode : kAll<Mode>) {
    for (Granularity ops : {Granularity::kPrimitive, Granularity::kFused}) {
      const ProfiledCell cells[] = {run(mode, ops)};
      int failures = -1;
      const Table t = launch_check_table(cells, &failures);
      EXPECT_EQ(failures, 0) << name_of(mode);
      EXPECT_EQ(cell(t, "what", "weight products, forward", "ran").as_int(), 7 * 2 + 1);
      EXPECT_EQ(cell(t, "what", "attention products, forward", "ran").as_int(), 2 * 2);
    }
  }
}

TEST_P(ProfileTest, PartsAndGapsAddUpToTheSpan) {
  for (bool use_tracer : {true, false}) {
    const ProfiledCell c = run(Mode::kStep, Granularity::kFused, use_tracer);
    ASSERT_EQ(c.profile.status, Status::kOk);
    double sum = c.work.gaps_ms - c.work.overlap_ms;
    for (const Work& w : c.work.rows) sum += w.sums.ms;
    EXPECT_NEAR(sum / c.work.span_ms, 1.0, 1e-9);
    const WorkSums total = c.work.total();
    const Cost cost = total_cost(c.profile.program);
    EXPECT_NEAR(total.flops / static_cast<double>(cost.flops), 1.0, 1e-12);
    EXPECT_NEAR(total.bytes / static_cast<double>(cost.bytes_read + cost.bytes_written), 1.0,
                1e-12);
  }
}

TEST_P(ProfileTest, AMissingKernelIsFoundAndNamed) {
  ProfiledCell cells[] = {run(Mode::kInference, Granularity::kFused)};
  auto& launches = cells[0].profile.launches;
  const auto gone = std::ranges::find_if(launches, [&](const ProfiledLaunch& l) {
    return l.node >= 0 && cells[0].profile.program.node(l.node).origin().path == "layers.1.ffn.w3";
  });
  ASSERT_NE(gone, launches.end());
  std::erase_if(launches, [node = gone->node](const auto& l) { return l.node == node; });
  int failures = 0;
  const Table t = launch_check_table(cells, &failures);
  EXPECT_GE(failures, 2);
  EXPECT_EQ(cell(t, "what", "weight products, forward", "verdict").as_string(), "differs");
  EXPECT_EQ(cell(t, "what", "all nodes that are no views", "detail").as_string(),
            "first missing: matmul layers.1.ffn.w3");
}

TEST_P(ProfileTest, AKernelUnderAnotherNodesNameIsFound) {
  ProfiledCell cells[] = {run(Mode::kInference, Granularity::kFused)};
  auto& launches = cells[0].profile.launches;
  launches[3].node = launches[4].node;
  int failures = 0;
  launch_check_table(cells, &failures);
  EXPECT_GE(failures, 1);
}

TEST_P(ProfileTest, AKernelThatNobodyAskedForIsFound) {
  ProfiledCell cells[] = {run(Mode::kInference, Granularity::kFused)};
  ProfiledLaunch extra = cells[0].profile.launches.back();
  extra.node = kWholeStep;
  cells[0].profile.launches.push_back(extra);
  int failures = 0;
  const Table t = launch_check_table(cells, &failures);
  EXPECT_EQ(failures, 1);
  EXPECT_EQ(cell(t, "what", "launches that no node asked for", "ran").as_int(), 1);
}

TEST_P(ProfileTest, SoftmaxIsComparedWithAttentionsProductsAlone) {
  const ProfiledCell c = run(Mode::kStep, Granularity::kPrimitive);
  const Table t = attention_table(c);
  // B·H·T² = 2·2·16², two layers; a product is 2·D = 32 operations per score.
  const double scores = 2.0 * 2 * 16 * 16 * 2;
  EXPECT_EQ(cell(t, "part", "scores, q kᵀ", "flops").as_double(), 32 * scores);
  EXPECT_EQ(cell(t, "part", "both products", "flops").as_double(), 64 * scores);
  const double softmax = cell(t, "part", "softmax, with scale and mask", "flops").as_double();
  EXPECT_GE(softmax, 5 * scores);
  EXPECT_LE(softmax, 9 * scores);
  ASSERT_FALSE(t.notes.empty());
  EXPECT_NE(t.notes[0].find("2·D = 32"), std::string::npos);
}

TEST_P(ProfileTest, ThePassesExplainWhyTheShareOfProductsDiffers) {
  const ProfiledCell cells[] = {run(Mode::kInference, Granularity::kFused),
                                run(Mode::kStep, Granularity::kFused)};
  const Table t = pass_table(cells);
  EXPECT_EQ(t.rows.size(), 2u + 4u);  // forward, all; forward, backward, optimizer, all
  ASSERT_EQ(t.notes.size(), 1u);
  EXPECT_NE(t.notes[0].find("FLOPs 3.00x"), std::string::npos) << t.notes[0];
}

TEST(KernelNameTest, ItSaysWhatTheKernelReadsAndWhatItWritesInstead) {
  ops::register_all();
  const Program p = parse_program(R"(program "p" {
    input %a : bf16[4,4]
    input %c : f32[4,4]
    input %t : i64[4]
    input %d : f32[]
    %0 : bf16[4,4] = matmul(%a, %a)
    %1 : f32[4,4] = matmul_add(%a, %0, %c)
    %2, %3 : f32[], bf16[4,4] = cross_entropy_with_grad(%d, %a, %t)
    %4 : f32[] = affine(%2) {scale=0.5}
    %5 : bf16[4,4] = cast(%1) {dtype=bf16}
    output "loss" = %4
    output "y" = %5
    output "z" = %3
  })");
  std::vector<std::string> names;
  for (const Node& node : p.nodes) names.push_back(kernel_name(p, node));
  EXPECT_THAT(
      names, ::testing::ElementsAre("matmul bf16", "matmul_add bf16>f32",
                                    "cross_entropy_with_grad bf16", "affine f32", "cast f32>bf16"));
}

TEST_P(ProfileTest, TheClocksSayHowTheHostWas) {
  const ProfiledCell cells[] = {run(Mode::kStep, Granularity::kFused)};
  const Table t = clock_table(cells);
  for (const char* column : {"host_before", "host_after"}) {
    EXPECT_TRUE(cell(t, "mode", "step", column).find("load_1min")->is_number()) << column;
  }
}

}  // namespace
}  // namespace tracestep
