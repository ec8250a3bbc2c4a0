#include "train/diagnosis.h"

#include "passes/loss_scaling.h"
#include "passes/optimizer.h"

#include <cmath>
#include <vector>

#include <fmt/ranges.h>

namespace tracestep {
namespace {

// Above these a rate or a weight is named as a likely reason; weights from a seed are within ±3.
constexpr double kLargestUsualRate = 0.1;
constexpr double kLargestUsualWeight = 1000.0;

std::string text_of(double x) {
  if (std::isfinite(x)) return fmt::format("{:g}", x);
  return std::isnan(x) ? "NaN" : "infinite";
}

std::string symptom_of(const TrainStep& step) {
  if (!step.not_finite) {
    if (std::isfinite(step.validation_loss.value_or(0.0))) return "what it leaves is not saved";
    return "the validation loss is " + text_of(*step.validation_loss);
  }
  if (!std::isfinite(step.loss)) {
    return fmt::format("the loss is {}, and the step changed nothing", text_of(step.loss));
  }
  return fmt::format("the gradient norm is {}, and the step changed nothing",
                     text_of(step.grad_norm));
}

std::string cause_text(const TrainStep& step, const std::optional<NotFinite>& cause) {
  if (cause) return "first, " + cause->str();
  if (std::isfinite(step.loss) && step.grad_norm >= kGradNormLimit) {
    return fmt::format("every value is finite, but squares of gradients from {:.2g} on are not",
                       kGradNormLimit);
  }
  return "computed again, every value was finite: memory or processor may be failing";
}

struct Weight {
  std::string name;
  double size = 0.0;
};

Weight largest_weight(const Store& store) {
  Weight out;
  for (const std::string& name : store.names(LeafKind::kParameter)) {
    const HostTensor values = widened(store.get(name));
    for (double x : values.as<double>()) {
      if (std::abs(x) > out.size) out = {name, std::abs(x)};
    }
  }
  return out;
}

// True if AdamW or Muon has too high a rate: a step moves weights by about it, or by a fifth of it.
bool is_fast(const TrainOptions& options, const TrainStep& step) {
  return options.run.optimizer.kind != OptimizerKind::kSgd && step.lr > kLargestUsualRate;
}

// Adds reasons for gradients that are not finite though the loss is.
void add_gradient_reasons(const TrainOptions& options, const TrainStep& step,
                          std::vector<std::string>& out) {
  if (step.loss_scale) {
    out.push_back(fmt::format(
        "the loss scale is at its floor of {:g}, so the gradients overflow by themselves",
        kLossScaleFloor));
  }
  if (options.run.precision.parameters == DType::kF16) {
    out.emplace_back("fp16-pure does not scale the loss; fp16 does");
  }
  if (is_fast(options, step)) return;
  const bool clips = options.run.optimizer.clip > 0.0;
  out.push_back(fmt::format("gradients explode: a lower learning rate, or {}",
                            clips ? "more warm-up steps" : "clipping to a norm of 1"));
}

std::vector<std::string> reasons(const TrainOptions& options, const TrainStep& step,
                                 const Store& store, const std::optional<NotFinite>& cause) {
  std::vector<std::string> out;
  const bool is_leaf = cause && !cause->phase;
  if (is_leaf) {
    out.push_back(
        fmt::format("the update of {} step overflowed", step.not_finite ? "an earlier" : "this"));
  }
  const Weight largest = largest_weight(store);
  if (largest.size > kLargestUsualWeight && std::isfinite(largest.size)) {
    out.push_back(fmt::format("weights have grown to {:.3g} ({})", largest.size, largest.name));
  }
  if (is_fast(options, step)) {
    out.push_back(fmt::format(
        "the learning rate moves each weight by up to {:g} in every step: a lower one", step.lr));
  }
  if (cause && cause->dtype == DType::kF16 && cause->infinite > 0) {
    out.emplace_back("float16 ends at 65504: bf16 and fp32 have the range");
  }
  if (step.not_finite && std::isfinite(step.loss) && !is_leaf) {
    add_gradient_reasons(options, step, out);
  }
  return out;
}

}  // namespace

Error not_finite_error(const TrainOptions& options, const TrainStep& step, const Store& store,
                       const std::optional<NotFinite>& cause, const std::string& last_finite) {
  std::vector<std::string> hints = reasons(options, step, store, cause);
  hints.push_back(last_finite);
  return {ErrorCode::kNotFinite, fmt::format("step {}", step.step),
          fmt::format("{}; {}", symptom_of(step), cause_text(step, cause)),
          fmt::format("{}", fmt::join(hints, "; "))};
}

}  // namespace tracestep
