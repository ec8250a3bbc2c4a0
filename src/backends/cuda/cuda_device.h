// The CUDA back end: one NVIDIA GPU, a stream for each lane, and float32, bfloat16 and float16. The
// driver and the CUDA libraries are found at run time, so a program with this back end also starts
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
  int index = 0;         // The GPU's number in the driver's order.
  bool guarded = false;  // True: use the guarded allocator, which is slow.
  // False: each allocation comes directly from the driver, so that memory checkers see it.
  bool pooled = true;
  // The limit on live requested bytes; 0: only the GPU's memory limits it.
  std::int64_t memory_limit = 0;
  bool tf32 = false;  // True: float32 matrix products round their operands to 10 mantissa bits.
  // True: captured kernels may be launched before earlier ones have ended.
  bool dependent_launch = false;
  bool tune = false;  // True: the first candidates for each new matrix product are timed.
  // The file from which choices are read and, when tuning, to which they are written.
  std::string tune_file = {};
  // The folder in which kernels compiled at run time are kept; empty: none are kept.
  std::string kernel_cache = {};
  // Memory lent for leaves by their names; it must outlive the device; nullptr: none.
  const LentMemory* lent = nullptr;
  // Adds kernels of ops from outside of this back end, or replaces its own. They must launch on
  // cuda::stream_of(call).handle (backends/cuda/toolkit/stream.h).
  std::function<void(KernelTable& table)> add_kernels = {};
};

struct CudaProbe {
  int devices = 0;  // The number of GPUs by the driver's count, including those that are too old.
  std::string problem = {};  // Why there are no devices; empty if there are.
  std::string driver = {};   // The CUDA version that the driver supports, "13.0".
  std::string runtime = {};  // The CUDA version of this build.
  // The library for matrix products, "cuBLASLt 13.0.2"; empty: not found.
  std::string gemm_library = {};
  // The run-time compiler, "NVRTC 13.0"; empty: none, so no kernels are made at run time.
  std::string compiler = {};
  std::string compiler_problem = {};    // why not
  std::vector<std::string> names = {};  // The name of each device: "NVIDIA H200".
};

// Looks for driver, libraries and devices; never throws.
CudaProbe probe_cuda();

// Makes the device. Throws Error{kDevice} if there is no driver or no GPU with the index, or the
// GPU is older than compute capability 8.0.
std::unique_ptr<Device> make_cuda_device(const CudaOptions& options = {});
// Order work of a CUDA device and of a stream (a cudaStream_t) of its GPU. begin_behind(): what the
// device issues from now on runs after the stream's work so far; let_wait(): what the stream gets
// from now on runs after the device's work so far. They throw DeviceError.
void begin_behind(Device& device, void* stream);
void let_wait(Device& device, void* stream);

// While this object exists, the calling thread's current GPU is `index`; a program that calls this
// library may have chosen another.
class CurrentGpu {
 public:
  explicit CurrentGpu(int index);
  ~CurrentGpu();
  CurrentGpu(const CurrentGpu&) = delete;
  CurrentGpu& operator=(const CurrentGpu&) = delete;

 private:
  int before_ = -1;
};

// Returns the cudaStream_t on which a CUDA device issues the work of a lane.
void* native_stream_of(Device& device, int lane = 0);

}  // namespace tracestep
