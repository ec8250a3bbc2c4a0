// Bodies of fused nodes that the tests of this folder share.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "codegen/fused_text.h"

namespace tracestep::testing {

// Bodies of fused kernels as text, by name: what a step makes of residuals, norms, rotations and
// gradients, and ops of every kind.
const std::map<std::string, std::string>& fused_bodies();

// The kernel for a body whose operands are dense, `alignment` bytes aligned.
FusedText kernel_of(const std::string& body, int alignment = 16);

}  // namespace tracestep::testing
