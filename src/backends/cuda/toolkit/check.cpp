#include "backends/cuda/toolkit/check.h"

#include "backends/cuda/toolkit/stream.h"

namespace tracestep::cuda {
namespace {

std::string words_for(cudaError_t status) {
  return fmt::format("{} ({})", cudaGetErrorString(status), cudaGetErrorName(status));
}

}  // namespace

void fail(cudaError_t status, const std::string& call) {
  cudaGetLastError();  // an error that is not sticky must not be reported twice
  throw DeviceError("cuda", call, words_for(status));
}

void fail_launch(const KernelCall& call, cudaError_t status) {
  cudaGetLastError();
  throw DeviceError("cuda", call.op.name, words_for(status));
}

}  // namespace tracestep::cuda
