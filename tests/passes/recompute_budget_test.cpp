// The cheapest choice under a budget: against every set of nodes where these can be listed, and
// against the fixed choices everywhere.
#include "passes/recompute_budget.h"

#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "analysis/memory_map.h"
#include "analysis/plan.h"
#include "analysis/roofline.h"
#include "base/error.h"
#include "ir/parse.h"
#include "ir/print.h"
#include "nn/transformer.h"
#include "ops/functions.h"
#include "passes/pipeline.h"
#include "passes/recompute.h"
#include "passes/recompute_choices.h"
#include "planning/needs.h"
#include "spec/parse_words.h"

namespace tracestep {
namespace {

using ::testing::HasSubstr;

constexpr DeviceKind kKind = DeviceKind::kCpu;

// As the eager executor holds it; text programs need no further pass.
std::int64_t peak_of(const Program& program) {
  return predicted_peak_bytes(program, plan_buffers(program), {});
}

double us_of(const Program& program) {
  return modelled_us(program, Phase::kRecompute, kKind);
}

struct Outcome {
  std::int64_t peak;
  double us;
};

class RecomputeBudgetTest : public ::testing::Test {
 protected:
  void SetUp() override { ops::register_all(); }
};

struct Size {
  std::int64_t layers, context;
  Granularity ops = Granularity::kFused;
  AttentionForm attention = AttentionForm::kNaive;
};

// A step before recomputation, wide enough that products take longer than launches.
Program step_of(const Size& size) {
  RunSpec run{.verify = true};
  PassContext context;
  run.mode = Mode::kStep;
  run.ops = size.ops;
  run.attention = size.attention;
  context.stop_after = "join";
  const ModelConfig model{
      .vocab = 500, .d_model = 256, .d_ff = 1024, .layers = size.layers, .heads = 4};
  return run_pipeline(loss_program(model, {.batch = 4, .context = size.context}), run, context)
      .program;
}

Program fixed(const Program& program, const std::string& choice) {
  return recompute(program, parse_recomputation("test", choice));
}

// Evenly between the least peak of the fixed choices and the peak without any.
std::vector<std::int64_t> ten_budgets(std::int64_t least, std::int64_t most) {
  std::vector<std::int64_t> out;
  for (int i = 0; i < 10; ++i) out.push_back(least + (most - least) * i / 10);
  return out;
}

TEST_F(RecomputeBudgetTest, NoFixedChoiceThatFitsIsCheaper) {
  for (const Size& size : {Size{3, 64}, Size{4, 32}, Size{4, 128, Granularity::kPrimitive},
                           Size{6, 256, Granularity::kFused, AttentionForm::kFlash}}) {
    const Program program = step_of(size);
    std::vector<Outcome> all;
    std::int64_t least = peak_of(program);
    for (const char* choice :
         {"blocks", "every=2", "every=3", "nested", "layers.*.ffn", "layers.*.attn"}) {
      const Program again = fixed(program, choice);
      all.push_back({peak_of(again), us_of(again)});
      least = std::min(least, all.back().peak);
    }
    std::vector<std::int64_t> budgets = ten_budgets(least, peak_of(program));
    for (const Outcome& f : all) budgets.push_back(f.peak);
    for (std::int64_t budget : budgets) {
      const WithinBudget found = recompute_within(program, budget, kKind, peak_of);
      EXPECT_LE(found.peak_bytes, budget);
      EXPECT_EQ(found.peak_bytes, peak_of(found.program));
      EXPECT_DOUBLE_EQ(found.again_us, us_of(found.program));
      EXPECT_LE(found.least_us, found.again_us);
      for (const Outcome& f : all) {
        if (f.peak <= budget) {
          EXPECT_LE(found.again_us, f.us) << budget << " " << found.choice;
        }
      }
    }
  }
}

// Whole blocks and parts of them, as a person would name them.
std::vector<std::string> unions_of_blocks(int layers) {
  std::vector<std::string> out;
  for (const char* part : {"", ".attn", ".ffn"}) {
    for (int set = 1; set < 1 << layers; ++set) {
      std::string names;
      for (int layer = 0; layer < layers; ++layer) {
        if ((set >> layer & 1) == 0) continue;
        names += fmt::format("{}layers.{}{}", names.empty() ? "" : "+", layer, part);
      }
      out.push_back(names);
    }
  }
  return out;
}

TEST_F(RecomputeBudgetTest, NoUnionOfBlocksOrTheirPartsThatFitsIsCheaper) {
  const Program program = step_of({4, 512});
  std::vector<Outcome> all;
  for (const std::string& choice : unions_of_blocks(4)) {
    const Program again = fixed(program, choice);
    all.push_back({peak_of(again), us_of(again)});
  }
  const std::int64_t least = std::ranges::min_element(all, {}, &Outcome::peak)->peak;
  BudgetSolver solver(program, kKind, peak_of);
  for (std::int64_t budget : ten_budgets(least, peak_of(program))) {
    const WithinBudget found = solver.within(budget);
    for (const Outcome& outcome : all) {
      if (outcome.peak <= budget) {
        EXPECT_LE(found.again_us, outcome.us) << budget;
      }
    }
  }
}

TEST_F(RecomputeBudgetTest, NothingRunsAgainThatCouldBeKept) {
  for (const Size& size : {Size{4, 512}, Size{4, 128, Granularity::kPrimitive}}) {
    const Program program = step_of(size);
    const std::int64_t least = peak_of(fixed(program, "blocks"));
    BudgetSolver solver(program, kKind, peak_of);
    for (std::int64_t budget : ten_budgets(least, peak_of(program))) {
      const WithinBudget found = solver.within(budget);
      for (std::size_t i = 0; i < found.again.size(); ++i) {
        if (!found.again[i]) continue;
        std::vector<bool> again = found.again;
        again[i] = false;
        const Program less = recompute_nodes(program, again);
        EXPECT_TRUE(peak_of(less) > budget || us_of(less) >= found.again_us)
            << budget << ": " << program.nodes[i].origin().path;
      }
    }
  }
}

// The outcome of each set of forward nodes.
std::vector<Outcome> all_outcomes(const Program& program) {
  std::vector<std::size_t> nodes;
  for (std::size_t i = 0; i < program.nodes.size(); ++i) {
    const Node& node = program.nodes[i];
    if (node.origin().phase == Phase::kForward && !node.op->is_view()) nodes.push_back(i);
  }
  std::vector<Outcome> out;
  for (std::size_t set = 0; set < (std::size_t{1} << nodes.size()); ++set) {
    std::vector<bool> again(program.nodes.size(), false);
    for (std::size_t i = 0; i < nodes.size(); ++i) again[nodes[i]] = (set >> i & 1) != 0;
    const Program candidate = recompute_nodes(program, again);
    out.push_back({peak_of(candidate), us_of(candidate)});
  }
  return out;
}

// Exponentials of vectors of several lengths; backward reads all of them.
Program uneven_chain() {
  std::string out = "program \"chain\" {\n  parameter %x : f32[1000]\n";
  const int lengths[] = {1000, 3000, 500, 4000, 2000};
  int next = 0;
  std::string last = "%x";
  std::vector<int> made;
  for (int length : lengths) {
    out += fmt::format("  %{} : f32[] = sum({}) {{axes=[0]}} @ a forward\n", next, last);
    out += fmt::format("  %{} : f32[{}] = broadcast(%{}) {{shape=[{}]}} @ a forward\n", next + 1,
                       length, next, length);
    out += fmt::format("  %{} : f32[{}] = exp(%{}) @ a forward\n", next + 2, length, next + 1);
    last = fmt::format("%{}", next + 2);
    made.push_back(next + 2);
    next += 3;
  }
  for (std::size_t i = made.size(); i-- > 0;) {
    out += fmt::format("  %{} : f32[] = sum(%{}) {{axes=[0]}} @ a backward\n", next, made[i]);
    out += fmt::format("  output \"y{}\" = %{}\n", i, next++);
  }
  return parse_program(out + "}");
}

// Two norms and products around an addition, as a block has them.
Program small_branches() {
  return parse_program(R"(program "branches" {
    parameter %x : f32[64,32]
    parameter %w : f32[32,32]
    %0 : f32[64,32] = exp(%x) @ layers.0 forward
    %1 : f32[64,32] = matmul(%0, %w) {transpose_b=true} @ layers.0 forward
    %2 : f32[64,32] = sigmoid(%1) @ layers.0 forward
    %3 : f32[64,32] = add(%2, %x) @ layers.0 forward
    %4 : f32[64,32] = exp(%3) @ layers.1 forward
    %5 : f32[64,32] = matmul(%4, %w) {transpose_b=true} @ layers.1 forward
    %6 : f32[64,32] = sigmoid(%5) @ layers.1 forward
    %7 : f32[64,32] = add(%6, %3) @ layers.1 forward
    %8 : f32[64,32] = mul(%7, %6) @ layers.1 backward
    %9 : f32[64,32] = mul(%8, %4) @ layers.1 backward
    %10 : f32[64,32] = mul(%9, %3) @ layers.1 backward
    %11 : f32[64,32] = mul(%10, %2) @ layers.0 backward
    %12 : f32[64,32] = mul(%11, %0) @ layers.0 backward
    output "y" = %12
  })");
}

TEST_F(RecomputeBudgetTest, OfSmallProgramsItFindsTheBestOfAllSets) {
  for (const Program& program : {uneven_chain(), small_branches()}) {
    const std::vector<Outcome> all = all_outcomes(program);
    const std::int64_t most = peak_of(program),
                       least = std::ranges::min_element(all, {}, &Outcome::peak)->peak;
    ASSERT_LT(least, most);
    EXPECT_THROW(recompute_within(program, least - 1, kKind, peak_of), Error);
    for (std::int64_t budget : ten_budgets(least, most)) {
      double best = std::numeric_limits<double>::infinity();
      for (const Outcome& o : all) {
        if (o.peak <= budget) best = std::min(best, o.us);
      }
      const WithinBudget found = recompute_within(program, budget, kKind, peak_of);
      EXPECT_LE(found.peak_bytes, budget);
      EXPECT_LE(found.again_us, 1.02 * best) << program.name << " " << budget;
      EXPECT_LE(found.least_us, best) << program.name << " " << budget;
    }
  }
}

TEST_F(RecomputeBudgetTest, ABudgetThatTheStepMeetsChangesNothing) {
  const Program program = step_of({2, 64});
  const std::int64_t peak = peak_of(program);
  const WithinBudget same = recompute_within(program, peak, kKind, peak_of);
  EXPECT_EQ(print(same.program), print(program));
  EXPECT_EQ(same.choice, "nothing");
  const WithinBudget less = recompute_within(program, peak - 1, kKind, peak_of);
  EXPECT_LT(less.peak_bytes, peak);
  EXPECT_GT(less.again_us, 0.0);
}

// A weight's narrow copy that runs again reads the weight: an early update waits for that. The
// pipeline verifies the program, which refuses a read behind the update.
TEST_F(RecomputeBudgetTest, EarlyUpdatesWaitForWhatRunsAgain) {
  const ModelConfig model{.vocab = 64, .d_model = 128, .d_ff = 512, .layers = 3, .heads = 4};
  const auto step = [&](std::int64_t budget_bytes) {
    RunSpec run{.precision = {.autocast = DType::kBF16}, .verify = true};
    run.executor = ExecutorKind::kArena;
    run.updates = UpdateTime::kEarly;
    if (budget_bytes > 0) {
      run.recompute = {.kind = Recomputation::Kind::kBudget, .budget_bytes = budget_bytes};
    }
    return run_pipeline(loss_program(model, {.batch = 1, .context = 8}), run, {}).program;
  };
  const std::int64_t peak_bytes = plan_step(step(0), {}).peak_bytes();
  for (const std::int64_t less : {200'000, 500'000, 800'000}) {
    const Program program = step(peak_bytes - less);
    EXPECT_LE(plan_step(program, {}).peak_bytes(), peak_bytes - less);
    EXPECT_TRUE(std::ranges::any_of(program.nodes, [](const Node& node) {
      return node.op->name == "cast" && node.origin().phase == Phase::kRecompute;
    }));
  }
}

TEST_F(RecomputeBudgetTest, AByteMoreThanAPeakKeepsItsChoiceAndAByteLessDoesNot) {
  const Program program = step_of({3, 128});
  const WithinBudget first = recompute_within(program, peak_of(program) * 9 / 10, kKind, peak_of);
  for (std::int64_t more : {0, 1}) {
    const WithinBudget again = recompute_within(program, first.peak_bytes + more, kKind, peak_of);
    EXPECT_LE(again.again_us, first.again_us);
    EXPECT_LE(again.peak_bytes, first.peak_bytes + more);
  }
  const WithinBudget less = recompute_within(program, first.peak_bytes - 1, kKind, peak_of);
  EXPECT_LT(less.peak_bytes, first.peak_bytes);
  EXPECT_GE(less.again_us, less.least_us);
}

TEST_F(RecomputeBudgetTest, ASolverFindsForEveryBudgetWhatAFreshOneFinds) {
  const Program program = step_of({4, 64});
  BudgetSolver solver(program, kKind, peak_of);
  const std::int64_t peak = peak_of(program);
  for (int percent : {100, 97, 10, 94, 98, 97}) {
    const std::int64_t budget = peak * percent / 100;
    std::string error;
    try {
      const WithinBudget found = solver.within(budget);
      const WithinBudget fresh = recompute_within(program, budget, kKind, peak_of);
      EXPECT_EQ(words_of(found), words_of(fresh));
      EXPECT_EQ(print(found.program), print(fresh.program));
      continue;
    } catch (const Error& refused) {
      error = refused.what();
    }
    EXPECT_EQ(percent, 10) << error;
    EXPECT_THROW(recompute_within(program, budget, kKind, peak_of), Error);
  }
}

// On a GPU, compiled: q, k and v are parts of one product, of which a copy of v may be kept.
TEST_F(RecomputeBudgetTest, WhatBlocksKeepForBackwardBoundsThePeakFromBelow) {
  RunSpec run{.verify = true};
  PassContext context;
  run.mode = Mode::kStep;
  context.traits.kind = DeviceKind::kCuda;
  context.has_kernel = [](const OpDef& op) { return runs_whole(DeviceKind::kCuda, op); };
  run.precision.autocast = DType::kBF16;
  run.executor = ExecutorKind::kArena;
  const std::vector<std::string> all = compile_passes();
  run.compile_passes.emplace(all.begin(), all.end());
  context.stop_after = "offload";
  const ModelConfig model{.vocab = 50, .d_model = 512, .d_ff = 512, .layers = 32, .heads = 8};
  const Program program =
      run_pipeline(loss_program(model, {.batch = 4, .context = 256}), run, context).program;
  context.stop_after = "";
  for (const auto& [name, doc] : pipeline_passes()) {
    context.disabled.insert(name);
    if (name == "offload") break;
  }
  for (const char* choice : {"none", "blocks", "every=4", "layers.*.ffn", "layers.*.attn"}) {
    const Program again = fixed(program, choice);
    const Program step = run_pipeline(again, run, context).program;
    EXPECT_LE(held_when_backward_begins(again), plan_step(step, context.traits).peak_bytes())
        << choice;
  }
}

TEST_F(RecomputeBudgetTest, ABudgetThatNothingMeetsIsRefusedWithTheLeastPeak) {
  const Program program = step_of({2, 64});
  std::int64_t least = 0;
  try {
    recompute_within(program, 1 << 20, kKind, peak_of);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUsage);
    const std::string text = error.what();
    EXPECT_THAT(text, HasSubstr("that brings the step's peak to 1.00 MiB (1048576 B)"));
    least = std::stoll(text.substr(text.rfind('(') + 1));
  }
  EXPECT_EQ(recompute_within(program, least, kKind, peak_of).peak_bytes, least);
  EXPECT_THROW(recompute_within(program, least - 1, kKind, peak_of), Error);
}

TEST_F(RecomputeBudgetTest, TheFrontierTradesTimeForBytesAndStartsWithNothing) {
  const Program program = step_of({4, 128});
  const auto all = RecomputeChoices(program, kKind).frontier();
  ASSERT_GT(all.size(), 3U);
  EXPECT_EQ(all.front().us, 0.0);
  double before = 0.0;
  for (std::size_t i = 1; i < all.size(); ++i) {
    const double price = (all[i].us - all[i - 1].us) / (all[i - 1].kept_bytes - all[i].kept_bytes);
    EXPECT_GT(all[i].us, all[i - 1].us);
    EXPECT_LT(all[i].kept_bytes, all[i - 1].kept_bytes);
    EXPECT_GE(price, before * (1.0 - 1e-9));
    before = price;
  }
}

}  // namespace
}  // namespace tracestep
