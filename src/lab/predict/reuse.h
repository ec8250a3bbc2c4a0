// Counts the bytes that a step touches between two accesses to the same memory, from its program;
// that number decides whether a cache still holds the memory.
#pragma once

#include <map>
#include <vector>

#include "analysis/buffer_plan.h"

namespace tracestep {

// Follows the buffers of a step in the order of its nodes, and the memory that freed buffers leave
// to later ones (best fit, as the caching allocator does it). Callers go through a step twice: in
// the second one the leaves have been touched before.
class Reuse {
 public:
  explicit Reuse(const BufferPlan& buffer_plan)
      : buffer_plan_(buffer_plan), touched_(buffer_plan.buffers.size(), kNever) {}

  // Begins a step: frees the buffers that the step before left alive for its reader.
  void restart();
  // Gives the node's new buffers their memory; call it before touch().
  void begin(NodeId node);
  // Touches a part of a buffer, and returns the bytes touched since it was touched last.
  double touch(int buffer, double bytes);
  // Frees the buffers that the node reads last.
  void end(NodeId node);

 private:
  static constexpr double kNever = -1e18;

  // Takes `bytes` of free memory, and returns the clock of the oldest access to them.
  double take(std::int64_t bytes);

  const BufferPlan& buffer_plan_;
  double clock_ = 0;                          // bytes touched so far
  std::vector<double> touched_;               // For each buffer, the clock at its last touch.
  std::multimap<std::int64_t, double> free_;  // bytes of a free piece → clock at its last touch
};

}  // namespace tracestep
