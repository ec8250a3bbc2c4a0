// The stream of this back end, to which Device::stream() points, and how kernels report bad data.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "backends/cuda/kernel_launch.h"
#include "runtime/kernel.h"

namespace tracestep::cuda {

class FusedKernels;
class Gemm;

// The kinds of bad data that kernels find. A kernel continues with a harmless value; at the next
// synchronisation the host sees the fault and throws Error{kUsage}.
enum class FaultKind : std::int32_t {
  kNone,
  kIndex,     // An index outside of [0, bound).
  kPosition,  // A position that does not leave room for the piece.
};
struct Fault {
  std::int32_t kind;  // The FaultKind of the first fault; later ones are not stored.
  std::int64_t value, bound;
  const char* op;  // The op's name, in host memory.
};
// Where a kernel stores a fault, and the name of the op for which it runs.
struct FaultPlace {
  Fault* fault = nullptr;
  const char* op = nullptr;
};

struct CudaStream {
  cudaStream_t handle = nullptr;
  bool dependent = false;  // True: launches may be dependent (kernel_launch.h).
  int device = 0;
  int multiprocessors = 1;
  int compute_capability = 80;  // 10 * major + minor.
  Fault* fault = nullptr;  // Where faults are stored, in host memory that the device can write.
  Gemm* gemm = nullptr;
  FusedKernels* fused = nullptr;
  bool tf32 = false;  // True: float32 products may round their operands to 10 mantissa bits.

  LaunchStream launch_stream() const { return {handle, dependent}; }
};

// Throws DeviceError with the op's name and the text of `status`.
[[noreturn]] void fail_launch(const KernelCall& call, cudaError_t status);

inline const CudaStream& stream_of(const KernelCall& call) {
  return *static_cast<const CudaStream*>(call.stream);
}

inline const CudaStream& stream_of(const LaunchContext& context) {
  return *static_cast<const CudaStream*>(context.stream);
}

inline FaultPlace faults_of(const KernelCall& call) {
  return {stream_of(call).fault, call.op.name.c_str()};
}

}  // namespace tracestep::cuda
