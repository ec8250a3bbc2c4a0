// How the CUDA kernels cut their work, as pure functions of shapes: the op records predict
// workspace from these plans, and the kernels obey them. No plan looks at the card, so that a
// prediction needs none.
#pragma once

#include <cstdint>

namespace tracestep {

// What every matrix product may use: the size that cuBLASLt's kernels for Hopper want.
inline constexpr std::int64_t kCudaGemmWorkspaceBytes = std::int64_t{32} << 20;

}  // namespace tracestep
