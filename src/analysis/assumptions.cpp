#include "analysis/assumptions.h"

#include <algorithm>

#include <fmt/format.h>

#include "ir/op_def.h"

namespace tracestep {

std::string assumptions_of(const Program& program) {
  const auto fused = std::ranges::count_if(
      program.nodes, [](const Node& node) { return node.op->kernel_class == KernelClass::kFused; });
  return fused == 0 ? "" : fmt::format("NVRTC, for {} fused kernels", fused);
}

}  // namespace tracestep
