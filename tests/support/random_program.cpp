#include "support/random_program.h"

#include <fmt/format.h>

#include "ops/functions.h"
#include "passes/loss_scaling.h"
#include "passes/optimizer.h"
#include "support/host_values.h"

namespace tracestep::testing {
namespace {

// The range of a leaf that a pass adds, by its name.
LeafRange range_of(const std::string& name) {
  if (name.starts_with("adamw.v.")) return {0.01, 1.0};
  if (name == "lr" || name == "step_size") return {1e-3, 1e-2};
  if (name == kLossScale) return {1024.0, 1024.0};
  if (name.starts_with("loss_scale.")) return {0.0, 0.0};
  if (name == kStepCount) return {0.0, 100.0};
  return {-1.0, 1.0};
}

RunSpec random_run(Dice& dice) {
  RunSpec out{.verify = true};
  out.mode = dice.pick({Mode::kInference, Mode::kInference, Mode::kForward, Mode::kForwardBackward,
                        Mode::kStep, Mode::kStep});
  out.ops = dice.pick(kAllGranularities);
  out.attention = dice.pick(kAll<AttentionForm>);
  if (dice.chance(0.5)) out.precision.autocast = dice.pick({DType::kBF16, DType::kF16});
  out.gradients = dice.pick({GradientKind::kTransient, GradientKind::kTransient,
                             GradientKind::kPersistent, GradientKind::kAccumulate});
  out.loss_chunks = dice.pick({1, 1, 2, 3});
  OptimizerOptions& optimizer = out.optimizer;
  optimizer.kind = dice.chance(0.8) ? OptimizerKind::kAdamw : OptimizerKind::kSgd;
  optimizer.weight_decay = dice.chance(0.3) ? 0.1 : 0.0;
  optimizer.clip = dice.chance(0.3) ? 1.0 : 0.0;
  optimizer.report_norm = dice.chance(0.2);
  optimizer.guard_finite = dice.chance(0.2);
  optimizer.loss_scaling.enabled =
      out.precision.autocast == DType::kF16 &&
      (out.mode == Mode::kStep || out.gradients != GradientKind::kTransient);
  return out;
}

}  // namespace

std::string RandomCase::wishes() const {
  const OptimizerOptions& o = run.optimizer;
  return fmt::format(
      "mode {}, ops {}, attention {}, autocast {}, gradients {}, loss chunks {}, {}, moments {}, "
      "weight decay {}, clip {}{}{}{}",
      name_of(run.mode), name_of(run.ops), name_of(run.attention),
      run.precision.autocast ? name_of(*run.precision.autocast) : "none",
      static_cast<int>(run.gradients), run.loss_chunks,
      o.kind == OptimizerKind::kAdamw ? "adamw" : "sgd", name_of(o.moments), o.weight_decay, o.clip,
      o.report_norm ? ", norm reported" : "", o.guard_finite ? ", guarded" : "",
      o.loss_scaling.enabled ? ", scaled" : "");
}

RandomCase random_case(std::uint64_t seed) {
  ops::register_all();
  Dice dice(seed);
  RandomCase out;
  out.run = random_run(dice);
  // From dice of its own, so that a seed still means the program that it meant.
  if (Dice(~seed).chance(0.4)) out.run.optimizer.moments = Moments::kBF16;
  const bool differentiable = out.run.mode != Mode::kInference;
  Builder b(fmt::format("random {}", seed));
  RandomOps random(b, dice, differentiable);
  random.add_calls(dice.between(4, 16));
  if (differentiable) {
    random.add_loss();
  } else {
    random.add_updates();
    random.add_outputs();
  }
  out.ranges = random.ranges();
  out.program = b.finish();
  return out;
}

Tensors leaf_values(const RandomCase& random, const Program& program) {
  Tensors out;
  for (ValueId id : program.leaves) {
    const Value& leaf = program.value(id);
    if (leaf.role == Role::kWeightCast) continue;
    const auto found = random.ranges.find(leaf.name);
    const LeafRange range = found == random.ranges.end() ? range_of(leaf.name) : found->second;
    out[leaf.name] = random_tensor(leaf.type, leaf.name, range.low, range.high);
  }
  return out;
}

}  // namespace tracestep::testing
