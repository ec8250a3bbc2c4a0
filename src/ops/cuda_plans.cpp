#include "ops/cuda_plans.h"

namespace tracestep {

ScatterPlan plan_scatter(std::int64_t rows, std::int64_t count) {
  constexpr std::int64_t kPair = 8, kWord = 4;
  ScatterPlan plan;
  plan.bounds = 0;
  plan.members[0] = plan.bounds + rows * kPair;
  plan.members[1] = plan.members[0] + count * kPair;
  plan.long_rows = plan.members[1] + count * kPair;
  const std::int64_t most_long_rows = count / (ScatterPlan::kFewMembers + 1);
  plan.workspace_bytes = plan.long_rows + (1 + most_long_rows) * kWord;
  return plan;
}

}  // namespace tracestep
