// What a kernel is called with, and the table in which a back end keeps its kernels.
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <string_view>

#include "ir/op_def.h"
#include "runtime/tensor_ref.h"

namespace tracestep {

struct KernelCall {
  const Node& node;                    // op and attributes
  std::span<const TensorRef> inputs;   // layouts the op record accepts
  std::span<const TensorRef> outputs;  // contiguous; may share storage with a donated input
  std::span<std::byte> workspace;      // as many bytes as the op record says, uninitialised
  void* stream = nullptr;              // Device::stream() of the device that runs it
};

// Nothing is checked inside but return codes: types and layouts were checked when the program was
// built. Throws DeviceError or Error{kUsage} (an index out of range).
using Kernel = void (*)(const KernelCall&);

class KernelTable {
 public:
  void add(std::string_view op, Kernel kernel) { kernels_[std::string(op)] = kernel; }
  // nullptr: no kernel of that name.
  Kernel find(std::string_view op) const {
    const auto found = kernels_.find(op);
    return found == kernels_.end() ? nullptr : found->second;
  }

 private:
  std::map<std::string, Kernel, std::less<>> kernels_;
};

}  // namespace tracestep
