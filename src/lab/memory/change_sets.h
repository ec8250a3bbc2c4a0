// The sets of changes that keep a step's task: what a search looks among.
#pragma once

#include <algorithm>
#include <vector>

#include "lab/memory/remedy.h"

namespace tracestep {

// A set of changes, before its program and after. Its time is guessed as if changes knew nothing
// of each other: what saves time saves its share, what costs time costs as much as alone.
struct ChangeSet {
  Remedy remedy;
  double start_ms = 0, less = 1, more = 1;
  bool is_sketched = false;

  double guessed_ms() const { return start_ms * less * more; }
  void apply(const StepChange& change, double time_ratio) {
    change.apply(remedy.step);
    remedy.severity = std::max(remedy.severity, change.severity);
    less *= std::min(1.0, time_ratio);
    more += std::max(0.0, time_ratio - 1);
  }
};

// All of them, described, by guessed time: each way to share the step and to divide its batch that
// no other one beats in time and bytes, with every choice of each field. The step as asked is the
// one without changes.
std::vector<ChangeSet> change_sets(Judge& judge);

}  // namespace tracestep
