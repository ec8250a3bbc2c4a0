#include "spec/check_run.h"

#include "base/error.h"
#include "passes/optimizer.h"
#include "spec/parse_words.h"
#include "spec/run_grid.h"

namespace tracestep {
namespace {

constexpr double kMaxStepBytes = 0x1p60;

// Returns an upper estimate of the bytes of a step; 0 for a captured module.
double step_bytes(const ModelConfig& m, BatchShape shape) {
  if (m.captured != nullptr) return 0.0;  // its reader has added them up
  const auto real = [](std::int64_t v) { return static_cast<double>(v); };
  const double rows = real(shape.batch) * real(shape.context);
  const double width = real(m.query_width() + m.key_width());
  const double weights = 2.0 * real(m.vocab) * real(m.d_model) +
                         real(m.layers) * real(m.d_model) * (2.0 * width + 3.0 * real(m.d_ff)) +
                         real(m.max_positions) * real(m.d_model);
  const double activations =
      rows * (real(m.layers) * (16.0 * real(m.d_model) + 4.0 * width + 10.0 * real(m.d_ff) +
                                10.0 * real(m.heads) * real(shape.context)) +
              10.0 * real(m.vocab));
  return (weights * 4.0 + activations) * 8.0;
}

void check_muon(const RunSpec& spec) {
  if (spec.mode != Mode::kStep || spec.optimizer.kind != OptimizerKind::kMuon) return;
  if (spec.optimizer.moments == Moments::k8Bit) {
    throw Error(ErrorCode::kUsage, "moments"_field,
                "8bit with optimizer muon: its mean of gradients has no codes",
                "give moments bf16, or optimizer adamw");
  }
  // True for runs in which possibly no layer has a matrix to train; all others have some.
  const bool may_have_none =
      spec.lora.is_on() || spec.frozen.any() || spec.model.captured != nullptr;
  if (!may_have_none || !muon_matrices(spec).empty()) return;
  throw Error(ErrorCode::kUsage, "optimizer"_field,
              "muon is for the matrices of layers, and no layer of the model has one to train",
              "give optimizer adamw");
}

}  // namespace

void check_run(const RunSpec& spec) {
  validate(spec.model);
  check_captured_shape(spec);
  check_muon(spec);
  if (spec.optimizer.moments == Moments::k8Bit && !spec.parallel.updates_whole_tensors()) {
    throw Error(
        ErrorCode::kUsage, "moments"_field,
        fmt::format("8bit with {}: blocks of codes are of whole tensors, and ranks hold parts",
                    name_of(spec.parallel)),
        "give moments bf16, or ranks without shard= and tp=");
  }
  if (has_activations(spec.offload) && spec.recompute.kind == Recomputation::Kind::kBudget) {
    throw Error(ErrorCode::kUsage, "recompute"_field,
                fmt::format("{} with offload {}: a budget chooses what stays on the device, and "
                            "what blocks keep goes to the host's memory",
                            name_of(spec.recompute), name_of(spec.offload)),
                "give recompute blocks or nested");
  }
  if (spec.grad_accum_dtype == GradientSums::kLow && spec.parallel.is_on()) {
    throw Error(
        ErrorCode::kUsage, "grad_accum_dtype"_field,
        fmt::format("low with {}: ranks add up gradients in float32", name_of(spec.parallel)),
        "leave it out; sums=low rounds what ranks send");
  }
  if (step_bytes(spec.model, spec.shape) < kMaxStepBytes) return;
  throw Error(ErrorCode::kUsage, "batch"_field,
              fmt::format("batch {} with context {} and this model is more than an exbibyte",
                          spec.shape.batch, spec.shape.context),
              "give smaller sizes");
}

}  // namespace tracestep
