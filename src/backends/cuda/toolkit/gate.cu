#include <atomic>

#include "backends/cuda/toolkit/check.h"
#include "backends/cuda/toolkit/gate.h"

namespace tracestep::cuda {
namespace {

constexpr unsigned long long kPatienceNs = 2'000'000'000;

__device__ unsigned long long global_ns() {
  unsigned long long t;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
  return t;
}

// Ends when the host has opened the gate `times` times, or after two seconds.
__global__ void wait_at_gate(const volatile unsigned* opened, unsigned times) {
  const unsigned long long start = global_ns();
  while (static_cast<int>(*opened - times) < 0 && global_ns() - start < kPatienceNs) {
    __nanosleep(200);
  }
}

}  // namespace

Gate::Gate(cudaStream_t stream) : stream_(stream), word_(sizeof(unsigned)) {
  *static_cast<unsigned*>(word_.data()) = 0;
}

Gate::~Gate() {
  open();
}

void Gate::shut() {
  if (shut_) return;
  shut_ = true;
  ++times_shut_;
  wait_at_gate<<<1, 1, 0, stream_>>>(static_cast<const unsigned*>(word_.data()), times_shut_);
  TRACESTEP_CUDA(cudaGetLastError());
}

void Gate::open() {
  if (!shut_) return;
  shut_ = false;
  std::atomic_ref(*static_cast<unsigned*>(word_.data())).store(times_shut_);
}

}  // namespace tracestep::cuda
