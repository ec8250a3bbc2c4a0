// The rules a program must obey; run after every pass in development and tests.
#pragma once

#include "ir/program.h"

namespace tracestep {

enum class VerifyStage : std::uint8_t {
  kBuilt,  // After building: views may still need a copy, and kernels may not accept a layout.
  // After `materialize`: no view still needs a copy, and the op accepts each kernel input's layout.
  kMaterialized,
};

// Throws std::logic_error naming the node that breaks a rule: values are defined before use,
// types and layouts are the inferred ones, leaves are updated once, with their own type, and
// never read after the update.
void verify(const Program& program, VerifyStage stage = VerifyStage::kBuilt);

}  // namespace tracestep
