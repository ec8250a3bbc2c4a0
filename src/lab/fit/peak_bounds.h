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
  // Computes bounds for the question that `judge` has; `judge` must outlive this.
  explicit PeakBounds(Judge& judge) : q_(judge.question()), figures_(judge.figures()) {}

  // The bytes of weights and states in the device's memory, which no recomputation and no form of a
  // kernel changes.
  std::int64_t kept_bytes(const Remedy& r);
  // Returns a lower bound on the peak: weights and states, and what forward or backward holds
  // besides, as far as the sets given to learn() show it.
  std::int64_t least_bytes(const Remedy& r);
  // Stores what forward and backward of set `r` hold, by `figures` of few layers, for later bounds.
  void learn(const Remedy& r, const StepFigures& figures);

 private:
  // The most bytes that forward holds at once besides leaves (weights, states and inputs), and the
  // bytes that each layer saves for backward.
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
