// Bounds the peak of a set of changes from below, without its program: so a search builds few.
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
  // `judge` must outlive it.
  explicit PeakBounds(Judge& judge) : q_(judge.question()), figures_(judge.figures()) {}

  // Weights and states in the device's memory, which no recomputation and no form of a kernel
  // changes.
  std::int64_t kept_bytes(const Remedy& r);
  // A lower bound on a sketched peak: what is kept, and what forward holds besides, as far as that
  // is known of other sets.
  std::int64_t least_bytes(const Remedy& r);
  // Remembers what a set holds, by its figures from few layers.
  void learn(const Remedy& r, const StepFigures& figures);

 private:
  // At its fullest moment besides leaves, and of that for backward of each layer.
  struct Forward {
    double bytes = 0, saved = 0;
  };
  std::optional<Forward> forward_of(const Remedy& r) const;
  double forward_bytes(const Remedy& r) const;
  double computing_bytes(const Remedy& r) const;
  double inputs_not_saved(const Remedy& r, double saved_bytes) const;

  const FitQuestion& q_;
  FiguresOfSteps& figures_;
  using Key = std::pair<std::string, std::int64_t>;  // of a step, and micro-batches
  std::map<Key, Forward> forward_;
  std::map<Key, double> computing_;
};

}  // namespace tracestep
