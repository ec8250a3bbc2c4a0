// Computes lower bounds on the peak of a set of changes without building its program, so that a
// search builds few programs.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "lab/fit/remedy.h"

namespace tracestep {

class PeakBounds {
 public:
  // Bounds for the question that `judge` has; `judge` must outlive this.
  explicit PeakBounds(Judge& judge) : q_(judge.question()), figures_(judge.figures()) {}

  // The bytes of weights and states in the device's memory, which no recomputation and no form of a
  // kernel changes.
  std::int64_t kept_bytes(const Remedy& r);
  // A lower bound on the peak: what is kept, and what forward holds besides, as far as other sets
  // have shown it.
  std::int64_t least_bytes(const Remedy& r);
  // Learns what forward holds from the figures of a set, which were taken with few layers.
  void learn(const Remedy& r, const StepFigures& figures);

 private:
  // The most bytes besides leaves at any moment of forward, and those of them that each layer keeps
  // for backward.
  struct Forward {
    double bytes = 0, saved = 0;
  };
  std::optional<Forward> forward_of(const Remedy& r) const;
  double forward_bytes(const Remedy& r) const;
  double computing_bytes(const Remedy& r) const;
  double inputs_not_saved(const Remedy& r, double saved_bytes) const;

  const FitQuestion& q_;
  FiguresOfSteps& figures_;
  // A step's fields as text, and its number of micro-batches.
  using Key = std::pair<std::string, std::int64_t>;
  std::map<Key, Forward> forward_;
  std::map<Key, double> computing_;
};

}  // namespace tracestep
