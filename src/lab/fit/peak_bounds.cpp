#include "lab/fit/peak_bounds.h"

#include "base/integers.h"
#include "spec/fields.h"

namespace tracestep {
namespace {

constexpr double kPrograms = 2;  // with gradients: of the first micro-batch and of the others

Remedy with_single_blocks(const Remedy& r) {
  Remedy out{.step = r.step, .micro_batches = r.micro_batches};
  out.step.recompute = Recomputation::blocks();
  return out;
}

// Returns a key that is equal for steps whose forward computes and saves equal values. Updates and
// places of states are left out: they change only the form of the weights that forward reads.
std::string key_of_forward(const RunSpec& asked, RunSpec step) {
  step.updates = asked.updates;
  step.offload = offload_of(has_optimizer(asked.offload), has_activations(step.offload));
  step.optimizer.moments = asked.optimizer.moments;
  return canonical_text(key_of(step));
}

// Returns a key that is equal for steps that hold equal bytes before updates, besides weights and
// states: all fields but those of the optimizer's states.
std::string key_of_computing(const RunSpec& asked, RunSpec step) {
  step.offload = offload_of(has_optimizer(asked.offload), has_activations(step.offload));
  step.optimizer.moments = asked.optimizer.moments;
  return canonical_text(key_of(step));
}

// Returns the bytes of narrow copies of a layer's share of the weights; 0 without autocast.
double narrow_copies(const RunSpec& step) {
  if (!step.precision.autocast) return 0;
  return static_cast<double>(parameter_formula(step.model)) /
         static_cast<double>(step.model.layers) *
         static_cast<double>(size_of(*step.precision.autocast));
}

bool has_states_as_asked(const RunSpec& asked, const RunSpec& step) {
  return has_optimizer(step.offload) == has_optimizer(asked.offload) &&
         step.optimizer.moments == asked.optimizer.moments;
}

}  // namespace

std::int64_t PeakBounds::kept_bytes(const Remedy& r) {
  RunSpec step = r.step;
  step.recompute = {};
  step.attention = q_.step.attention;
  step.loss_chunks = q_.step.loss_chunks;
  step.ffn_chunks = q_.step.ffn_chunks;
  step.offload = offload_of(has_optimizer(step.offload), false);
  step.ops = q_.step.ops;
  // Gradients that are kept between micro-batches do not depend on how many there are.
  return figures_.kept_bytes(step, r.micro_batches > 1 ? 2 : 1);
}

std::int64_t PeakBounds::least_bytes(const Remedy& r) {
  const std::int64_t least =
      kept_bytes(r) + static_cast<std::int64_t>(std::max(forward_bytes(r), computing_bytes(r)));
  if (r.step.recompute.every == 1) return least;
  const Remedy single = with_single_blocks(r);
  const StepFigures* figures = figures_.sketched(single.step, single.micro_batches);
  if (figures == nullptr) return least;
  const double not_saved = inputs_not_saved(r, static_cast<double>(*figures->saved_bytes));
  return std::max(least, figures->peak_bytes - static_cast<std::int64_t>(not_saved));
}

double PeakBounds::forward_bytes(const Remedy& r) const {
  double out = 0;
  if (const auto forward = forward_of(r)) out = forward->bytes;
  if (r.step.recompute.every > 1) {
    if (const auto forward = forward_of(with_single_blocks(r))) {
      out = std::max(out, forward->bytes - inputs_not_saved(r, forward->saved));
    }
  }
  // Chunks of the loss save nothing of the layers.
  Remedy at_once{.step = r.step, .micro_batches = r.micro_batches};
  at_once.step.loss_chunks = q_.step.loss_chunks;
  if (const auto forward = forward_of(at_once)) {
    out = std::max(out, forward->saved * static_cast<double>(r.step.model.layers - 2));
  }
  return out;
}

double PeakBounds::computing_bytes(const Remedy& r) const {
  double out = 0;
  const auto found = computing_.find({key_of_computing(q_.step, r.step), r.micro_batches});
  if (found != computing_.end()) out = found->second;
  // Blocks that run again together hold for backward what they would have saved, but for narrow
  // copies of weights, which are made again where they are read; chunks run again one by one.
  if (is_of_blocks(r.step.recompute) && r.step.ffn_chunks == 1) {
    Remedy without{.step = r.step, .micro_batches = r.micro_batches};
    without.step.recompute = {};
    if (const auto forward = forward_of(without)) {
      const double saved = forward->saved - kPrograms * narrow_copies(r.step);
      out = std::max(out, saved * r.step.recompute.every);
    }
  }
  return out;
}

// Stores the bytes that a step's forward and backward hold, for bounds on others; forward's only if
// updates are as asked for, as forward otherwise holds narrow copies of weights of its own.
void PeakBounds::learn(const Remedy& r, const StepFigures& figures) {
  if (!figures.forward_bytes || !has_states_as_asked(q_.step, r.step)) return;
  computing_[{key_of_computing(q_.step, r.step), r.micro_batches}] =
      static_cast<double>(*figures.computing_bytes);
  if (r.step.updates != q_.step.updates) return;
  // If a step has two programs, only one of them holds these bytes at a time.
  const bool is_of_both = r.micro_batches == 1;
  forward_[{key_of_forward(q_.step, r.step), r.micro_batches}] = {
      static_cast<double>(*figures.forward_bytes),
      static_cast<double>(*figures.saved_bytes) * (is_of_both ? 1 : 0.5)};
}

// Returns the stored bytes of forward; those of half as many micro-batches count half, and so on.
std::optional<PeakBounds::Forward> PeakBounds::forward_of(const Remedy& r) const {
  const std::string key = key_of_forward(q_.step, r.step);
  double share = 1;
  for (std::int64_t parts = r.micro_batches;; parts /= 2) {
    if (const auto found = forward_.find({key, parts}); found != forward_.end()) {
      return Forward{share * found->second.bytes, share * found->second.saved};
    }
    if (parts % 2 != 0) return std::nullopt;
    share *= 0.5;
  }
}

// Returns the bytes by which groups of blocks hold less than single blocks, at the same node: the
// inputs of all blocks but the first of each group, which are computed again instead of being
// saved. `saved_bytes` are those of one block's inputs.
double PeakBounds::inputs_not_saved(const Remedy& r, double saved_bytes) const {
  const std::int64_t layers = r.step.model.layers;
  const std::int64_t blocks = layers - ceil_div(layers, std::int64_t{r.step.recompute.every});
  return static_cast<double>(blocks) * saved_bytes;
}

}  // namespace tracestep
