#include "spec/effects.h"

namespace tracestep {
namespace {

bool is_step(const RunSpec& run) {
  return run.mode == Mode::kStep;
}
bool has_codes(const RunSpec& run) {
  return run.precision.float8;
}

constexpr const char *kStep = "option mode step", *kFp8 = "option precision fp8",
                     *kNoCodes = "no step has products in 8 bits";

constexpr FieldEffect kEffects[] = {
    {"fp8_products", has_codes, kNoCodes, kFp8},
    {"fp8_scaling", has_codes, kNoCodes, kFp8},
    {"moments", is_step, "nothing is updated, so there are no moments", kStep},
    {"updates", is_step, "nothing is updated, early or late", kStep},
    {"offload", is_step, "nothing is updated, so nothing waits in the host's memory", kStep},
    {"recompute", [](const RunSpec& run) { return run.mode != Mode::kInference; },
     "inference keeps nothing for backward, so there is nothing to compute again", kStep},
    {"loss_chunks", [](const RunSpec& run) { return run.mode != Mode::kInference; },
     "inference ends with logits, so there is no loss to divide", kStep},
    {"launch_order", [](const RunSpec& run) { return run.executor == ExecutorKind::kCompiled; },
     "no step is captured, so its launches have no order of their own", "option executor compiled"},
};

}  // namespace

std::span<const FieldEffect> field_effects() {
  return kEffects;
}

}  // namespace tracestep
