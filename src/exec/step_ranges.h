// Reports ranges of a step to a profiler: the phase, and inside it the component whose kernels are
// issued.
#pragma once

#include <vector>

#include "ir/program.h"
#include "runtime/range_sink.h"

namespace tracestep {

class StepRanges {
 public:
  // Registers the names that the program needs.
  StepRanges(RangeSink& sink, const Program& program);
  ~StepRanges() { leave(); }
  StepRanges(const StepRanges&) = delete;
  StepRanges& operator=(const StepRanges&) = delete;

  // Called before the node is issued: closes and opens ranges where the phase or the component
  // changes. A node with several origins is shown under the first one.
  void enter(NodeId node);
  // Closes all open ranges.
  void leave();

 private:
  static constexpr int kNone = -1;
  struct Place {
    int phase = kNone, component = kNone;
  };

  RangeSink& sink_;
  std::vector<Place> places_;  // By node.
  Place open_;
};

}  // namespace tracestep
