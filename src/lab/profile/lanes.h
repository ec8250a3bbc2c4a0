// Finds which kernels ran at the same time: the lanes of a profile, and how much of their time
// other lanes hide. All times are per step; a launch counts with its counted_ms().
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lab/profile/run.h"

namespace tracestep {

int lane_of(const Profile& profile, const ProfiledLaunch& launch);

// Returns for each node the nodes whose work its kernels do: the node itself, or its whole batch if
// it is the last of one, because a batch is launched as one kernel.
std::vector<std::vector<NodeId>> nodes_of_kernels(const Profile& profile);

// The time in which kernels of one phase run on one lane.
struct LaneTime {
  int lane = 0;
  std::string phase = {};
  double launches = 0;
  double ms = 0;
  double hidden_ms = 0;  // The part of it during which kernels of other lanes run.

  double exposed_ms() const { return ms - hidden_ms; }
};
// Returns the times of all lanes; empty if all kernels ran on one lane.
std::vector<LaneTime> lane_times(const Profile& profile);

// The time in which collectives run, and the part of it in which no other kernel runs.
struct Communication {
  double ms = 0, exposed_ms = 0;
};
// Returns a profile's communication; nullopt: the program has no collectives. If the records are
// spans, kernels were run one at a time; the exposed time is then the plain span minus the time of
// all other kernels, as in `bench`.
std::optional<Communication> communication_of(const Profile& profile);

// Returns the time in which kernels run in each recorded step, with delays by other work included.
std::vector<double> busy_ms_by_step(const Profile& profile);

}  // namespace tracestep
