#include "lab/study/accounting.h"

#include <algorithm>

#include "base/error.h"
#include "lab/study/memory_formulas.h"

namespace tracestep {

AccountedPeak accounted_peak(const StepSpec& step, const Accounting& as) {
  constexpr std::int64_t kFloat = 4;
  if (step.model.precision != Precision{}) {
    fail_usage("--account-as", "there is a form for fp32 alone, not for {}",
               name_of(step.model.precision));
  }
  const std::int64_t p = parameter_formula(step.model);
  const std::int64_t graph = kFloat * step.model.layers *
                             course_elements_per_layer(step.model, step.shape, as.saved_scores);
  switch (step.mode) {
    case Mode::kForward:
      return {kFloat * p + as.live_graphs * graph,
              fmt::format("4·{} + {} graphs × {}", p, as.live_graphs, graph)};
    case Mode::kForwardBackward:
      return {std::max(kFloat * p + graph, 2 * kFloat * p),
              fmt::format("max(4·{} + {}, 8·{})", p, graph, p)};
    case Mode::kStep:
      return {std::max(3 * kFloat * p + graph, 4 * kFloat * p),
              fmt::format("max(12·{} + {}, 16·{})", p, graph, p)};
    case Mode::kInference: break;
  }
  fail_usage("--account-as",
             "there is no form for inference; use forward, forward-backward or step");
}

}  // namespace tracestep
