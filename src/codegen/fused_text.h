// The text of a fused kernel: from a body, and from what is known of where its operands lie, to
// CUDA C++ that a run-time compiler takes as it is. A pure function; no toolkit is needed.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "analysis/fused_body.h"

namespace tracestep {

// What a kernel may rely on for an operand or a result.
struct FusedOperand {
  Strides strides;           // elements; results are dense
  int alignment_bytes = 16;  // of the first element: a power of two, 16 is as good as more
  friend bool operator==(const FusedOperand&, const FusedOperand&) = default;
};

struct FusedText {
  std::string kernel;  // without the device text that stands before it
  unsigned blocks = 1, threads = 1;
  std::vector<std::size_t> operands = {};  // the leaves that the kernel reads
};

// The name of the kernel: `extern "C"`, its parameters are pointers to the operands it
// reads and then to all outputs. An output pointer may be null: nobody reads that result.
inline constexpr const char* kFusedKernelName = "fused_kernel";

// `leaves`, `outputs`: in the order of the body's.
FusedText write_fused_kernel(const FusedBody& body, std::span<const FusedOperand> leaves,
                             std::span<const FusedOperand> outputs);

// The whole text for the compiler: what kernels are written in, then the kernel.
std::string with_device_text(const std::string& kernel);

}  // namespace tracestep
