// Where a kernel is launched, and whether it may be launched before earlier work has ended
// (programmatic dependent launch, compute capability 9.0 and later).
//
// A dependent launch saves the time between two kernels: the second one's blocks are placed as soon
// as all of the first one's have ended, or have begun where the first lets them (let_next_begin()),
// and wait until its writes can be seen. So the kernel has to wait itself, with all of its
// threads and before it touches memory. Kernels say that they do by their first parameter
// (predecessors.cuh); others, those of libraries among them, are launched after everything before
// them. As each kernel ends only after its own wait, what a kernel waited for has waited for all
// work before it.
//
// Only launches that are captured, directly after one other kernel, are made dependent: after a
// copy, or where two lanes meet, there is nothing to gain.
#pragma once

#include <cuda_runtime_api.h>

namespace tracestep::cuda {

struct LaunchStream {
  cudaStream_t handle = nullptr;
  bool dependent = false;  // True: launches may be dependent.

  operator cudaStream_t() const { return handle; }
};

struct LaunchSize {
  dim3 blocks, threads;
  unsigned shared_bytes = 0;  // dynamic
  unsigned cluster = 1;       // The thread blocks of a cluster along x (compute capability 9.0).
};

// Returns the number of multiprocessors of the current device.
inline int multiprocessor_count() {
  static const int count = [] {
    int device = 0, n = 1;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&n, cudaDevAttrMultiProcessorCount, device);
    return n;
  }();
  return count;
}

// True if `stream` is being captured, and the last thing captured is a single kernel.
inline bool is_behind_a_kernel(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  const cudaGraphNode_t* nodes = nullptr;
  const cudaGraphEdgeData* edges = nullptr;
  std::size_t count = 0;
#if CUDART_VERSION >= 13000
  const cudaError_t known =
      cudaStreamGetCaptureInfo(stream, &status, nullptr, nullptr, &nodes, &edges, &count);
#else
  const cudaError_t known =
      cudaStreamGetCaptureInfo_v3(stream, &status, nullptr, nullptr, &nodes, &edges, &count);
#endif
  if (known != cudaSuccess || status != cudaStreamCaptureStatusActive || count != 1) return false;
  cudaGraphNodeType type = cudaGraphNodeTypeEmpty;
  return cudaGraphNodeGetType(nodes[0], &type) == cudaSuccess && type == cudaGraphNodeTypeKernel;
}

// Launches a kernel, which is one of the runtime or a cudaKernel_t. `waits`: the kernel itself
// waits for its predecessors.
inline cudaError_t launch_kernel(const LaunchStream& stream, const LaunchSize& size,
                                 const void* kernel, void** parameters, bool waits) {
  cudaLaunchAttribute attributes[2]{};
  unsigned count = 0;
  if (waits && stream.dependent && is_behind_a_kernel(stream.handle)) {
    attributes[count].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[count++].val.programmaticStreamSerializationAllowed = 1;
  }
  if (size.cluster > 1) {
    attributes[count].id = cudaLaunchAttributeClusterDimension;
    attributes[count].val.clusterDim.x = size.cluster;
    attributes[count].val.clusterDim.y = attributes[count].val.clusterDim.z = 1;
    ++count;
  }
  cudaLaunchConfig_t config{};
  config.gridDim = size.blocks;
  config.blockDim = size.threads;
  config.dynamicSmemBytes = size.shared_bytes;
  config.stream = stream.handle;
  config.attrs = attributes;
  config.numAttrs = count;
  return cudaLaunchKernelExC(&config, kernel, parameters);
}

}  // namespace tracestep::cuda
