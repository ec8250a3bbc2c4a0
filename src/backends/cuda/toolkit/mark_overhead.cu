#include "backends/cuda/toolkit/mark_overhead.h"

#include <algorithm>
#include <limits>

#include "backends/cuda/toolkit/check.h"
#include "backends/cuda/toolkit/events.h"
#include "backends/cuda/toolkit/waits.h"

namespace tracestep::cuda {
namespace {

__global__ void do_nothing() {}

// Returns the mean time between two events with `kernels` empty kernels in between, over pairs of
// events; the least of several such means, since disturbances only add time.
double between_events_ns(cudaStream_t stream, Gate& gate, int kernels) {
  constexpr int kPairs = 16, kTimes = 8;
  EventMarks marks(stream, 2 * kPairs);
  double least = std::numeric_limits<double>::infinity();
  for (int time = 0; time < kTimes; ++time) {
    gate.shut();
    for (std::size_t pair = 0; pair < kPairs; ++pair) {
      marks.set(2 * pair);
      for (int i = 0; i < kernels; ++i) do_nothing<<<1, 32, 0, stream>>>();
      marks.set(2 * pair + 1);
    }
    gate.open();
    TRACESTEP_CUDA(cudaGetLastError());
    std::int64_t sum_ns = 0;
    for (std::size_t pair = 0; pair < kPairs; ++pair) {
      sum_ns += marks.between_ns(2 * pair, 2 * pair + 1);
    }
    least = std::min(least, static_cast<double>(sum_ns) / kPairs);
  }
  return least;
}

}  // namespace

std::int64_t measure_mark_overhead_ns(cudaStream_t stream, Gate& gate) {
  constexpr int kSeveral = 9;
  // The first launch loads the kernel, which may wait for the device: no gate must be shut then.
  do_nothing<<<1, 32, 0, stream>>>();
  wait_for(stream);
  const double one = between_events_ns(stream, gate, 1);
  const double each_further = (between_events_ns(stream, gate, kSeveral) - one) / (kSeveral - 1);
  return static_cast<std::int64_t>(std::max(0.0, one - each_further));
}

}  // namespace tracestep::cuda
