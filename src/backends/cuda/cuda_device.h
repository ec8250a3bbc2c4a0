// The CUDA back end: one NVIDIA GPU, a stream for each lane, float32, bfloat16 and float16. The
// driver and the CUDA libraries are found at run time: a program with this back end also starts
// without them.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/device.h"
#include "runtime/kernel.h"
#include "runtime/lent_memory.h"

namespace tracestep {

struct CudaOptions {
  int index = 0;                     // as the driver counts
  bool guarded = false;              // the guarded allocator; slow
  bool pooled = true;                // false: allocate from the driver each time (memory checkers)
  std::int64_t memory_limit = 0;     // live requested bytes; 0: only the GPU's memory limits it
  bool tf32 = false;                 // float32 matrix products with 10-bit mantissas
  bool dependent_launch = false;     // captured kernels may be launched before others have ended
  bool tune = false;                 // time the first candidates of each new matrix product
  std::string tune_file = {};        // where choices are read from and, when tuning, kept
  std::string kernel_cache = {};     // folder of kernels compiled at run time; empty: none are kept
  const LentMemory* lent = nullptr;  // for leaves by name; must outlive the device
  // Adds kernels of ops from outside this back end, or replaces its own. They launch on
  // cuda::stream_of(call).handle (backends/cuda/toolkit/stream.h).
  std::function<void(KernelTable& table)> add_kernels = {};
};

struct CudaProbe {
  int devices = 0;                      // as the driver counts, too old ones included
  std::string problem = {};             // why there are none
  std::string driver = {};              // "13.0": the CUDA version the driver speaks
  std::string runtime = {};             // that of this build
  std::string gemm_library = {};        // "cuBLASLt 13.0.2", empty: not found
  std::string compiler = {};            // "NVRTC 13.0", empty: no kernels are made at run time
  std::string compiler_problem = {};    // why not
  std::vector<std::string> names = {};  // "NVIDIA H200", one per device
};

// Probes driver, libraries and devices; never throws.
CudaProbe probe_cuda();

// Throws Error{kDevice}: no driver, no such index, a GPU older than compute capability 8.0.
std::unique_ptr<Device> make_cuda_device(const CudaOptions& options = {});
// Orders the work of such a device and of another stream of the same GPU, a cudaStream_t: what the
// device issues from now on runs behind what the stream has so far, or the other way round. Throw
// DeviceError.
void begin_behind(Device& device, void* stream);
void let_wait(Device& device, void* stream);

// While it lives, the calling thread's current GPU is this one, as a program around ours may have
// chosen another.
class CurrentGpu {
 public:
  explicit CurrentGpu(int index);
  ~CurrentGpu();
  CurrentGpu(const CurrentGpu&) = delete;
  CurrentGpu& operator=(const CurrentGpu&) = delete;

 private:
  int before_ = -1;
};

// The cudaStream_t on which such a device issues the work of a lane.
void* native_stream_of(Device& device, int lane = 0);

}  // namespace tracestep
