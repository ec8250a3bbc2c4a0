// The rules a program must obey; run after every pass in development and tests.
#pragma once

#include "ir/program.h"

namespace tracestep {

enum class VerifyStage : std::uint8_t {
  kBuilt,         // views may still need a copy, kernels may not accept a layout yet
  kMaterialized,  // every view is one, every kernel input has a layout the op accepts
};

// Throws std::logic_error naming the node that breaks a rule: values are defined before use,
// types and layouts are the inferred ones, leaves are updated once, with their own type, and
// never read after the update.
void verify(const Program& program, VerifyStage stage = VerifyStage::kBuilt);

}  // namespace tracestep
