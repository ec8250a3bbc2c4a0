#include "lab/memory/plan.h"

#include "base/error.h"
#include "spec/step_program.h"

namespace tracestep {
namespace {

bool can_be_divided(RunSpec step, const Parallel& parallel) {
  step.parallel = parallel;
  try {
    rank_shape(step);
  } catch (const Error&) {
    return false;
  }
  return true;
}

}  // namespace

std::vector<Parallel> parallel_choices(const RunSpec& step, int ranks, int of_node) {
  std::vector<Parallel> out;
  for (int tensor = 1; tensor <= ranks && tensor <= of_node; tensor *= 2) {
    Parallel choice{.ranks = ranks, .tensor = tensor, .divides_rows = tensor > 1};
    if (ranks % tensor != 0 || !can_be_divided(step, choice)) continue;
    const bool has_replicas = choice.replicas() > 1 && step.mode == Mode::kStep;
    for (int shard = 0; shard <= (has_replicas ? 3 : 0); ++shard) {
      choice.shard = shard;
      out.push_back(choice);
    }
  }
  return out;
}

}  // namespace tracestep
