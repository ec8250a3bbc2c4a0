#include "lab/memory/accounting.h"

#include <algorithm>

#include "base/error.h"
#include "lab/memory/tables.h"
#include "lab/report/digits.h"
#include "spec/step_program.h"

namespace tracestep {
namespace {

constexpr std::int64_t kFloat = 4;

// Returns the peak with backward. `held`: how many sets of tensors of the weights' size are alive
// all the time. Gradients are one more: alive with the graph if they are kept; else they grow while
// the graph is freed.
AccountedPeak with_backward(std::int64_t held, std::int64_t p, std::int64_t graph, bool kept) {
  const std::int64_t fixed = kFloat * held, all = kFloat * (held + 1);
  if (kept) return {all * p + graph, fmt::format("{}·{} + {}", all, grouped(p), grouped(graph))};
  return {
      std::max(fixed * p + graph, all * p),
      fmt::format("max({}·{} + {}, {}·{})", fixed, grouped(p), grouped(graph), all, grouped(p))};
}

}  // namespace

AccountedPeak accounted_peak(const RunSpec& step, const Accounting& as) {
  if (step.precision != Precision{}) {
    fail_usage("account_as"_field, "there is a form for fp32 alone, not for {}",
               name_of(step.precision));
  }
  if (trains_part(step)) {
    fail_usage("account_as"_field, "there is a form for steps alone that train all weights");
  }
  const std::int64_t p = parameter_formula(step.model);
  const std::int64_t graph = kFloat * step.model.layers *
                             course_elements_per_layer(step.model, step.shape, as.saved_scores);
  switch (step.mode) {
    case Mode::kForward:
      return {kFloat * p + as.live_graphs * graph,
              fmt::format("4·{} + {}·{}", grouped(p), as.live_graphs, grouped(graph))};
    case Mode::kForwardBackward: return with_backward(1, p, graph, as.kept_gradients);
    case Mode::kStep: return with_backward(3, p, graph, as.kept_gradients);
    case Mode::kInference: break;
  }
  fail_usage("account_as"_field,
             "there is no form for inference; use forward, forward-backward or step");
}

}  // namespace tracestep
