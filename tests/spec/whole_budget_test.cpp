// A memory budget is for the peak of the whole step: of every program of it, with what lies beside
// it, on every kind of device.
#include "spec/whole_budget.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>

#include "base/error.h"
#include "exec/executor.h"
#include "ops/functions.h"
#include "spec/fields.h"
#include "spec/micro_batches.h"
#include "spec/step_program.h"

namespace tracestep::testing {
namespace {

constexpr DeviceTraits kCpu{.kind = DeviceKind::kCpu, .threads = 1};
constexpr DeviceTraits kGpu{.kind = DeviceKind::kCuda};

using Values = std::map<std::string, std::string>;  // texts of fields, by name

RunSpec step_with(const Values& values) {
  RunSpec out{.model = {.vocab = 40, .d_model = 32, .d_ff = 64, .layers = 3, .heads = 2},
              .shape = {.batch = 2, .context = 16}};
  out.fp8_products = Float8Products::kAll;
  for (const auto& [name, text] : values) field_named(name).parse(name, text)(out);
  return out;
}

std::int64_t peak_of(RunSpec run, const DeviceTraits& traits, std::int64_t budget_bytes) {
  if (budget_bytes > 0) {
    run.recompute = {.kind = Recomputation::Kind::kBudget, .budget_bytes = budget_bytes};
  }
  return predicted_peak_bytes(run.executor, step_program(run, traits), traits);
}

// Whether the step was made within the budget, or refused with a larger one that it meets.
enum class Kept { kMade, kRefused };

Kept expect_kept(const RunSpec& run, const DeviceTraits& traits, std::int64_t budget_bytes) {
  try {
    EXPECT_LE(peak_of(run, traits, budget_bytes), budget_bytes);
    return Kept::kMade;
  } catch (const BudgetNotMet& error) {
    EXPECT_GT(error.least_peak_bytes(), budget_bytes);
    EXPECT_LE(peak_of(run, traits, error.least_peak_bytes()), error.least_peak_bytes());
    return Kept::kRefused;
  }
}

class WholeBudgetTest : public ::testing::Test {
 protected:
  void SetUp() override { ops::register_all(); }
};

// --- steps in micro-batches --------------------------------------------------------------------

// Beside each micro-batch lie the optimizer's states, the rows of the others and what of weights
// is made once for all.
TEST_F(WholeBudgetTest, MicroBatchesKeepItTogether) {
  struct Case {
    Values values;
    DeviceTraits traits;
  };
  const Case cases[] = {
      {{{"executor", "eager"}}, kCpu},
      {{{"executor", "compiled"}, {"precision", "fp8"}}, kCpu},
      {{{"executor", "eager"}, {"precision", "bf16"}, {"updates", "early"}}, kCpu},
      {{{"executor", "arena"}, {"precision", "bf16"}, {"parallel", "dp=2,shard=1"}}, kCpu},
      {{{"executor", "compiled"}, {"precision", "bf16"}, {"lora", "r=2,alpha=4,targets=q+v"}},
       kCpu},
      {{{"executor", "compiled"}, {"precision", "fp8"}, {"moments", "8bit"}}, kGpu},
      {{{"executor", "compiled"}, {"precision", "bf16"}, {"offload", "optimizer"}}, kGpu}};
  std::set<Kept> seen;
  for (Case c : cases) {
    c.values["accumulate"] = "3";
    c.values["context"] = "64";
    const RunSpec run = step_with(c.values);
    const std::int64_t peak = peak_of(run, c.traits, 0);
    for (const std::int64_t percent : {97, 20}) {
      if (percent == 20 && run.precision != Precision()) continue;  // a refusal takes the longest
      SCOPED_TRACE(fmt::format("{} on {}, {} % of {} B", label_of(run), name_of(c.traits.kind),
                               percent, peak));
      seen.insert(expect_kept(run, c.traits, peak * percent / 100));
    }
  }
  EXPECT_EQ(seen.size(), 2);
}

TEST_F(WholeBudgetTest, ABudgetThatNothingHasToGoForChangesNothing) {
  const RunSpec run = step_with({{"precision", "bf16"}, {"accumulate", "3"}});
  RunSpec within = run;
  within.recompute = {.kind = Recomputation::Kind::kBudget, .budget_bytes = peak_of(run, kCpu, 0)};
  EXPECT_EQ(step_program(within, kCpu), step_program(run, kCpu));
}

// With the optimizer's states beside it, nothing that a micro-batch computes again is in vain: the
// choice uses what the budget has room for.
TEST_F(WholeBudgetTest, TheRoomThatIsLeftIsUsed) {
  const RunSpec run = step_with({{"accumulate", "3"}, {"context", "64"}});
  const std::int64_t peak = peak_of(run, kCpu, 0);
  const std::int64_t budget = peak * 8 / 10;
  EXPECT_GT(peak_of(run, kCpu, budget), budget * 9 / 10);
}

TEST_F(WholeBudgetTest, TooManyMicroBatchesForOneProgramKeepItTogether) {
  constexpr std::int64_t kParts = kMostInOneProgram + 1;
  for (const std::string_view executor : {"eager", "compiled"}) {
    RunSpec run = step_with({{"executor", std::string(executor)}, {"precision", "bf16"}});
    run.shape.batch = kParts;
    const auto peak = [&] {
      return predicted_peak_bytes(run.executor, parts_of_step(run, kParts, kCpu), kCpu);
    };
    const std::int64_t budget = peak() * 95 / 100;
    run.recompute = {.kind = Recomputation::Kind::kBudget, .budget_bytes = budget};
    EXPECT_LE(peak(), budget) << executor;
    run.recompute.budget_bytes = 1;
    try {
      peak();
      ADD_FAILURE() << "a budget of one byte";
    } catch (const BudgetNotMet& error) {
      run.recompute.budget_bytes = error.least_peak_bytes();
      EXPECT_LE(peak(), error.least_peak_bytes()) << executor;
    }
  }
}

// --- one program -------------------------------------------------------------------------------

// Whatever budget was refused, the peak that the error names is one that a budget meets.
TEST_F(WholeBudgetTest, TheLeastPeakIsTheSameForEveryBudgetThatIsRefused) {
  RunSpec run = step_with({{"precision", "bf16"}, {"loss_chunks", "4"}, {"ffn_chunks", "2"}});
  run.model = {.vocab = 256, .d_model = 64, .d_ff = 128, .layers = 4, .heads = 2};
  run.shape = {.batch = 4, .context = 64};
  const std::int64_t peak = peak_of(run, kGpu, 0);
  std::set<std::int64_t> least;
  for (const std::int64_t percent : {85, 70, 30}) {
    try {
      peak_of(run, kGpu, peak * percent / 100);
      ADD_FAILURE() << percent;
    } catch (const BudgetNotMet& error) {
      least.insert(error.least_peak_bytes());
    }
  }
  ASSERT_EQ(least.size(), 1);
  EXPECT_LE(peak_of(run, kGpu, *least.begin()), *least.begin());
}

}  // namespace
}  // namespace tracestep::testing
