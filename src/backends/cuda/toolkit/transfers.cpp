#include "backends/cuda/toolkit/transfers.h"

#include <algorithm>
#include <cstring>

#include "backends/cuda/toolkit/check.h"
#include "backends/cuda/toolkit/waits.h"

namespace tracestep::cuda {

Transfers::Transfers(cudaStream_t stream) : stream_(stream) {
  for (cudaEvent_t& event : free_) {
    TRACESTEP_CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  }
}

Transfers::~Transfers() {
  for (cudaEvent_t event : free_) cudaEventDestroy(event);
}

void Transfers::in(void* device, const void* host, std::int64_t bytes) {
  for (std::int64_t done = 0; done < bytes; done += kPieceBytes) {
    const auto n = static_cast<std::size_t>(std::min(kPieceBytes, bytes - done));
    auto* piece = static_cast<std::byte*>(staging_.data()) + next_ * kPieceBytes;
    wait_for(free_[next_]);
    std::memcpy(piece, static_cast<const std::byte*>(host) + done, n);
    TRACESTEP_CUDA(cudaMemcpyAsync(static_cast<std::byte*>(device) + done, piece, n,
                                   cudaMemcpyDefault, stream_));
    TRACESTEP_CUDA(cudaEventRecord(free_[next_], stream_));
    next_ = (next_ + 1) % kPieces;
  }
}

void Transfers::out(void* host, const void* device, std::int64_t bytes) {
  for (std::int64_t done = 0; done < bytes; done += kPieceBytes) {
    const auto n = static_cast<std::size_t>(std::min(kPieceBytes, bytes - done));
    auto* piece = static_cast<std::byte*>(staging_.data()) + next_ * kPieceBytes;
    TRACESTEP_CUDA(cudaMemcpyAsync(piece, static_cast<const std::byte*>(device) + done, n,
                                   cudaMemcpyDefault, stream_));
    wait_for(stream_);
    std::memcpy(static_cast<std::byte*>(host) + done, piece, n);
  }
}

SideUploads::Handles::Handles() {
  TRACESTEP_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  TRACESTEP_CUDA(cudaEventCreateWithFlags(&copied, cudaEventDisableTiming));
}

SideUploads::Handles::~Handles() {
  cudaEventDestroy(copied);
  cudaStreamDestroy(stream);
}

SideUploads::SideUploads(cudaStream_t main) : main_(main), transfers_(own_.stream) {}

SideUploads::~SideUploads() {
  settle(own_.stream);
}

void SideUploads::in(void* device, const void* host, std::int64_t bytes) {
  transfers_.in(device, host, bytes);
  TRACESTEP_CUDA(cudaEventRecord(own_.copied, own_.stream));
  TRACESTEP_CUDA(cudaStreamWaitEvent(main_, own_.copied, 0));
}

}  // namespace tracestep::cuda
