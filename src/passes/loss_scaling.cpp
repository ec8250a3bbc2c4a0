#include "passes/loss_scaling.h"

#include "ops/functions.h"

namespace tracestep {

Val loss_scale_state(Builder& b, std::string_view name) {
  const ValueId found = b.program().find_leaf(name);
  return found == kNoValue ? b.state(name, {DType::kF32, {}}) : b.at(found);
}

void update_loss_scale(Builder& b, const LossScaling& options, Val good) {
  const auto scope = b.scope(kLossScale);
  const Val scale = loss_scale_state(b), streak = loss_scale_state(b, kGoodSteps),
            skipped = loss_scale_state(b, kSkippedSteps);
  const auto constant = [&](double value) { return ops::fill(b, value, scale.type()); };
  const Val zero = constant(0.0);
  const Val longer = ops::affine(streak, 1.0, 1.0);
  const Val due = ops::binary("le", constant(static_cast<double>(options.growth_interval)), longer);
  const Val kept = ops::select(due, ops::affine(scale, options.growth), scale);
  // The streak starts again at 0 after a failed step, and after the scale has grown.
  b.update(streak, ops::select(good, ops::select(due, zero, longer), zero));
  b.update(skipped, ops::select(good, skipped, ops::affine(skipped, 1.0, 1.0)));
  Val reduced = ops::affine(scale, options.backoff);
  if (options.floor > 0.0) reduced = ops::binary("maximum", reduced, constant(options.floor));
  b.update(scale, ops::select(good, kept, reduced));
}

}  // namespace tracestep
