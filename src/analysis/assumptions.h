// States what a prediction assumes about a device, beyond what its traits say.
#pragma once

#include <string>

#include "ir/program.h"

namespace tracestep {

// Says in words what a prediction assumes: "NVRTC, for 86 fused kernels", since traits do not say
// whether a device has its run-time compiler. Empty: it assumes nothing.
std::string assumptions_of(const Program& program);

}  // namespace tracestep
