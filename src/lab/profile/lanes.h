// Tells which kernels ran at the same time: the lanes of a profile, and how much of their time
// kernels of other lanes hide. All times are per step, and a launch has its counted_ms().
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lab/profile/run.h"

namespace tracestep {

int lane_of(const Profile& profile, const ProfiledLaunch& launch);

// By node: the nodes that its kernels stand for. That is the node itself, or all of its batch where
// it ends one: a batch is issued as one kernel.
std::vector<std::vector<NodeId>> nodes_of_kernels(const Profile& profile);

// The time in which kernels of one phase run on one lane.
struct LaneTime {
  int lane = 0;
  std::string phase = {};
  double launches = 0;
  double ms = 0;
  double hidden_ms = 0;  // of it: while kernels of other lanes run

  double exposed_ms() const { return ms - hidden_ms; }
};
// Empty where all kernels ran on one lane.
std::vector<LaneTime> lane_times(const Profile& profile);

// The time in which collectives run, and of it the part in which no other kernel does.
struct Communication {
  double ms = 0, exposed_ms = 0;
};
// nullopt: the program has no collectives. Spans are of kernels that each run alone; then exposed
// is what the plain span is longer than all other kernels, as in `bench`.
std::optional<Communication> communication_of(const Profile& profile);

// The time in which kernels run, by recorded step, whatever held them up.
std::vector<double> busy_ms_by_step(const Profile& profile);

}  // namespace tracestep
