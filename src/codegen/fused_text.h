// The source text of a fused kernel: CUDA C++ for a run-time compiler, generated from a body and
// the strides and alignment of its operands. A pure function; no toolkit is needed.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "analysis/fused_body.h"

namespace tracestep {

// Strides and alignment that a kernel may rely on for an operand or a result.
struct FusedOperand {
  Strides strides;  // The strides in elements; results are dense.
  // The alignment of the first element's address in bytes: a power of two; more than 16 has no
  // effect.
  int alignment_bytes = 16;
  friend bool operator==(const FusedOperand&, const FusedOperand&) = default;
};

struct FusedText {
  // The kernel's text without the device headers, which with_device_text() adds.
  std::string kernel;
  unsigned blocks = 1, threads = 1;
  std::vector<std::size_t> operands = {};  // the leaves that the kernel reads
};

// The name of the kernel: `extern "C"`, its parameters are pointers to the operands it
// reads and then to all outputs. An output pointer may be null: that result is not stored.
inline constexpr const char* kFusedKernelName = "fused_kernel";

// Writes a kernel's text. `leaves` and `outputs` are in the order of the body's leaves and outputs.
// `in_place`: outputs may lie where leaves do, element by element.
FusedText write_fused_kernel(const FusedBody& body, std::span<const FusedOperand> leaves,
                             std::span<const FusedOperand> outputs, bool in_place = false);

// Returns the whole text for the compiler: the device headers, followed by the kernel.
std::string with_device_text(const std::string& kernel);

}  // namespace tracestep
