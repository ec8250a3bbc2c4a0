#include "lab/memory/changes.h"

#include <string>

namespace tracestep {
namespace {

template <class T>
Choices one(ChangeSeverity severity, T RunSpec::*field, T value) {
  return {{severity, [=](RunSpec& step) { step.*field = value; }}};
}

StepChange recomputes(const Recomputation& choice) {
  return {ChangeSeverity::kSameNumbers, [=](RunSpec& step) { step.recompute = choice; }};
}

// Choices for all layers alike, those that compute least again first.
Choices recomputations(const RunSpec& step) {
  using Kind = Recomputation::Kind;
  const Recomputation& now = step.recompute;
  if (step.mode == Mode::kInference || now.kind == Kind::kNested) return {};
  const bool is_of_parts = now.kind == Kind::kParts;
  const bool is_of_blocks =
      is_of_parts && now.paths == std::vector<std::string>{std::string(kBlocks)};
  Choices out;
  if (!is_of_parts) {
    out.push_back(recomputes(Recomputation::parts({"layers.*.ffn"})));
    out.push_back(recomputes(Recomputation::parts({"layers.*.attn"})));
  }
  if (!is_of_blocks) out.push_back(recomputes(Recomputation::blocks()));
  // Larger groups hold more than the blocks' inputs that they save.
  for (const int every : {2, 4}) {
    const bool is_new = !is_of_blocks || every > now.every;
    if (is_new && 2 * every <= step.model.layers) {
      out.push_back(recomputes(Recomputation::blocks(every)));
    }
  }
  return out;
}

}  // namespace

std::string_view name_of(ChangeSeverity severity) {
  switch (severity) {
    case ChangeSeverity::kSameNumbers: return "same numbers";
    case ChangeSeverity::kOtherRoundings: return "other roundings";
    case ChangeSeverity::kOtherPrecision: return "lower precision";
    case ChangeSeverity::kOtherStates: return "other states";
    case ChangeSeverity::kOtherTask: return "another task";
  }
  return "?";
}

bool is_pure(const Precision& precision) {
  return precision.parameters != DType::kF32;
}

bool has_budget(const RunSpec& step) {
  return step.recompute.kind == Recomputation::Kind::kBudget;
}

std::vector<Choices> choices_of(const RunSpec& step, const DeviceTraits& traits) {
  using enum ChangeSeverity;
  const bool is_step = step.mode == Mode::kStep;
  std::vector<Choices> out;
  if (is_step && step.updates != UpdateTime::kEarly) {
    out.push_back(one(kSameNumbers, &RunSpec::updates, UpdateTime::kEarly));
  }
  out.push_back(recomputations(step));
  if (is_step && traits.has_own_memory() && step.offload == Offload::kNone) {
    out.push_back(one(kSameNumbers, &RunSpec::offload, Offload::kOptimizer));
  }
  if (step.ops != Granularity::kFused) {
    out.push_back(one(kOtherRoundings, &RunSpec::ops, Granularity(Granularity::kFused)));
  }
  if (step.attention != AttentionForm::kFlash) {
    out.push_back(one(kOtherRoundings, &RunSpec::attention, AttentionForm::kFlash));
  }
  if (step.mode != Mode::kInference && step.loss_chunks == 1) {
    out.push_back(one(kOtherRoundings, &RunSpec::loss_chunks, std::int64_t{0}));
  }
  if (!step.precision.autocast && !is_pure(step.precision)) {
    out.push_back(one(kOtherPrecision, &RunSpec::precision, Precision{.autocast = DType::kBF16}));
  }
  if (is_step && step.optimizer.moments != Moments::kBF16) {
    out.push_back({{kOtherStates, [](RunSpec& s) { s.optimizer.moments = Moments::kBF16; }}});
  }
  return out;
}

}  // namespace tracestep
