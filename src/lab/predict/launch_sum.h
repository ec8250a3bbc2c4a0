// Adds the launches of a step up: one after the other, by phase and component, and as they run
// beside each other on lanes or between ranks. Times of launches come from a TimeModel.
#pragma once

#include <array>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lab/predict/between.h"
#include "lab/predict/time_model.h"
#include "lab/predict/timeline.h"

namespace tracestep {

// True if nodes of the program run beside others, or between ranks.
bool has_lanes(const Program& program);

// Kernels added up by phase and component.
class PartSums {
 public:
  void add(const Origin& origin, double us);
  std::vector<PredictedPart> take() { return std::move(parts_); }

 private:
  std::map<std::pair<Phase, std::string>, std::size_t> index_;
  std::vector<PredictedPart> parts_;
};

class LaunchSum {
 public:
  // Keeps references to all three.
  LaunchSum(const Program& program, const std::optional<Link>& link, const Between& between);

  // The time by the link; nullopt: the node is no collective, or no link is known.
  std::optional<double> collective_us(NodeId id) const;

  // Adds the launch of a node, in the order of the program. Microseconds.
  void add(NodeId id, double us);

  // When the last kernel of a program without lanes ends: with a host that launches as usual, as
  // fast as it ever does, and as slowly.
  std::array<double, 3> ended_us() const;
  // The host's time for launching.
  double issue_us() const { return issue_us_; }

  // Fills all but `ms`, its band, and the kernels that were not calibrated.
  StepTime sum();

 private:
  const Program& program_;
  const std::optional<Link>& link_;
  const Between& between_;
  std::vector<Turn> turns_;  // by node, in a program with lanes
  PartSums parts_;
  std::map<std::pair<Phase, KernelClass>, PredictedClass> classes_;
  std::vector<double> us_;  // by node
  double sum_us_ = 0, issue_us_ = 0;
  std::int64_t launches_ = 0;
  std::array<double, 3> paces_;
  std::array<LaunchQueue, 3> queues_;
};

}  // namespace tracestep
