// The stream of this back end, to which Device::stream() points, and reports of bad data.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "backends/cuda/kernel_launch.h"
#include "runtime/kernel.h"

namespace tracestep::cuda {

class FusedKernels;
class Gemm;

// Kinds of bad data that a kernel finds. The host sees them at the next synchronisation and throws
// Error{kUsage}; until then the kernel went on with a harmless value.
enum class FaultKind : std::int32_t {
  kNone,
  kIndex,     // an index outside [0, bound)
  kPosition,  // a position that does not leave room
};
struct Fault {
  std::int32_t kind;  // FaultKind; the first one stays
  std::int64_t value, bound;
  const char* op;  // its name, in host memory
};
// A kernel leaves a fault at this place.
struct FaultPlace {
  Fault* fault = nullptr;
  const char* op = nullptr;
};

struct CudaStream {
  cudaStream_t handle = nullptr;
  bool dependent = false;  // whether launches may be dependent ones
  int device = 0;
  int multiprocessors = 1;
  int compute_capability = 80;  // 10 * major + minor
  Fault* fault = nullptr;       // host memory that the device can write
  Gemm* gemm = nullptr;
  FusedKernels* fused = nullptr;
  bool tf32 = false;  // products of float32 may round their operands to 10 bits of mantissa

  LaunchStream launch_stream() const { return {handle, dependent}; }
};

// DeviceError that names the op.
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
