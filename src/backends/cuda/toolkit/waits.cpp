#include "backends/cuda/toolkit/waits.h"

#include "backends/cuda/toolkit/check.h"
#include "runtime/host_wait.h"

namespace tracestep::cuda {
namespace {

constexpr const char* kDevice = "its GPU";

}  // namespace

void wait_for(cudaStream_t stream) {
  const HostWait wait(kDevice);
  TRACESTEP_CUDA(cudaStreamSynchronize(stream));
}

void wait_for(cudaEvent_t event) {
  const HostWait wait(kDevice);
  TRACESTEP_CUDA(cudaEventSynchronize(event));
}

void wait_for_device() {
  const HostWait wait(kDevice);
  TRACESTEP_CUDA(cudaDeviceSynchronize());
}

void settle(cudaStream_t stream) {
  const HostWait wait(kDevice);
  cudaStreamSynchronize(stream);
}

}  // namespace tracestep::cuda
