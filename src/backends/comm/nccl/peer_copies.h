// Sums between two GPUs of a host by copies: the copy engines carry the halves, and one kernel
// adds, so that no multiprocessor waits for the link.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "runtime/processes.h"
#include "runtime/tensor_ref.h"

namespace tracestep {

// Issues y = a + b for `count` elements on a stream of the calling thread's current GPU. y may be a
// or b.
using SumOnStream = std::function<void(void* y, const void* a, const void* b, std::int64_t count,
                                       DType dtype, void* stream)>;

// An all_reduce of x: [n] into y: [n], which may be the same memory; n is even.
struct PeerSum {
  TensorRef x, y;
};

class PeerCopies {
 public:
  virtual ~PeerCopies() = default;
  // True for a tensor that is worth its copies; all processes say the same.
  virtual bool takes(const TensorRef& x) const = 0;
  // Issues the sums on a stream. Each process adds its half of the elements and sends it to the
  // other one, so both have the same bits. May be captured. Throws DeviceError.
  virtual void all_reduce(std::span<const PeerSum> sums, void* stream) = 0;
};

// Both of two processes must call this; each has its GPU as the current one. nullptr on both where
// one of them cannot reach the memory of the other. Takes 128 MiB of each GPU outside of its
// allocator.
std::unique_ptr<PeerCopies> make_peer_copies(Processes& processes, SumOnStream sum);

}  // namespace tracestep
