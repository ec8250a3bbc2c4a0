// Adds up the launches of a step: in sequence, by phase and component, and overlapping on lanes or
// between ranks. The time of each launch comes from a TimeModel.
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

// True if nodes of the program overlap others on a lane, or communicate between ranks.
bool has_lanes(const Program& program);

// Sums of kernel times by phase and component.
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
  // Keeps references to all three arguments, which must outlive it.
  LaunchSum(const Program& program, const std::optional<Link>& link, const Between& between);

  // Returns the time of a collective over the link; nullopt: the node is none, or no link is known.
  std::optional<double> collective_us(NodeId id) const;

  // Adds the launch of a node, in the order of the program. Microseconds.
  void add(NodeId id, double us);

  // Returns the time when the last kernel of a program without lanes ends: with a host that
  // launches at its usual, its fastest and its slowest speed.
  std::array<double, 3> ended_us() const;
  // Returns the host's time for all launches that were added, in microseconds.
  double issue_us() const { return issue_us_; }

  // Returns the time of the step, except `ms`, its band, and the kernels that were not calibrated,
  // which the caller sets.
  StepTime sum();

 private:
  const Program& program_;
  const std::optional<Link>& link_;
  const Between& between_;
  std::vector<Turn> turns_;  // By node, for a program with lanes.
  PartSums parts_;
  std::map<std::pair<Phase, KernelClass>, PredictedClass> classes_;
  std::vector<double> us_;  // Microseconds by node.
  double sum_us_ = 0, issue_us_ = 0;
  std::int64_t launches_ = 0;
  std::array<double, 3> paces_;
  std::array<LaunchQueue, 3> queues_;
};

}  // namespace tracestep
