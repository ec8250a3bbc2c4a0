#include "backends/cuda/toolkit/transfers.h"

#include <algorithm>
#include <cstring>

#include "backends/cuda/toolkit/check.h"
#include "backends/cuda/toolkit/waits.h"

namespace tracestep::cuda {

Transfers::Ring::Ring(std::int64_t bytes_each, int count)
    : bytes_each_(bytes_each), memory_(bytes_each * count), free_(static_cast<std::size_t>(count)) {
  for (cudaEvent_t& event : free_) {
    TRACESTEP_CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  }
}

Transfers::Ring::~Ring() {
  for (cudaEvent_t event : free_) cudaEventDestroy(event);
}

std::byte* Transfers::Ring::take() {
  last_ = (last_ + 1) % free_.size();
  wait_for(free_[last_]);
  return static_cast<std::byte*>(memory_.data()) + static_cast<std::int64_t>(last_) * bytes_each_;
}

void Transfers::Ring::send(cudaStream_t stream) {
  TRACESTEP_CUDA(cudaEventRecord(free_[last_], stream));
}

void Transfers::in(void* device, const void* host, std::int64_t bytes) {
  Ring& ring = bytes <= small_.bytes_each() ? small_ : large_;
  for (std::int64_t done = 0; done < bytes; done += ring.bytes_each()) {
    const auto n = static_cast<std::size_t>(std::min(ring.bytes_each(), bytes - done));
    std::byte* const piece = ring.take();
    std::memcpy(piece, static_cast<const std::byte*>(host) + done, n);
    TRACESTEP_CUDA(cudaMemcpyAsync(static_cast<std::byte*>(device) + done, piece, n,
                                   cudaMemcpyDefault, stream_));
    ring.send(stream_);
  }
}

void Transfers::out(void* host, const void* device, std::int64_t bytes) {
  for (std::int64_t done = 0; done < bytes; done += large_.bytes_each()) {
    const auto n = static_cast<std::size_t>(std::min(large_.bytes_each(), bytes - done));
    std::byte* const piece = large_.take();
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
