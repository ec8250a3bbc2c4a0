// The first parameter of kernels that may be launched before their predecessors have ended.
#pragma once

#include <type_traits>

#include "backends/cuda/kernel_launch.h"

namespace tracestep::cuda {

// A kernel with this parameter calls wait() in every thread before it touches memory. Before
// wait(), it may only bring lines into the second-level cache, which later writes update, and read
// memory that nothing in the program writes.
struct Predecessors {
  // Lets the next kernel place its blocks as soon as all blocks of this kernel have begun.
  __device__ __forceinline__ void let_next_begin() const {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
  }
  // Returns when all earlier kernels have ended and their writes can be seen; at once where the
  // launch is an ordinary one. Calls let_next_begin() first, so that the next kernel waits, too.
  __device__ __forceinline__ void wait() const {
    let_next_begin();
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
  }
};

template <class... P>
cudaError_t launch_kernel(const LaunchStream& stream, const LaunchSize& size, void (*kernel)(P...),
                          std::type_identity_t<P>... arguments) {
  void* parameters[] = {const_cast<void*>(static_cast<const void*>(&arguments))...};
  return launch_kernel(stream, size, reinterpret_cast<const void*>(kernel), parameters, false);
}

template <class... P>
cudaError_t launch_kernel(const LaunchStream& stream, const LaunchSize& size,
                          void (*kernel)(Predecessors, P...),
                          std::type_identity_t<P>... arguments) {
  Predecessors before;
  void* parameters[] = {&before, const_cast<void*>(static_cast<const void*>(&arguments))...};
  return launch_kernel(stream, size, reinterpret_cast<const void*>(kernel), parameters, true);
}

}  // namespace tracestep::cuda
