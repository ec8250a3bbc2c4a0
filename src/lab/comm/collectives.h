// How long collectives take alone: every one of them, by size and number of ranks.
#pragma once

#include <string>
#include <vector>

#include "lab/report/table.h"
#include "runtime/communicator.h"

namespace tracestep {

inline const std::vector<std::string> kTimedCollectives = {"all_reduce", "reduce_scatter",
                                                           "all_gather"};

struct CollectiveSpec {
  std::string op = "all_reduce";
  int ranks = 2;
  std::int64_t bytes = 1 << 20;  // of the whole tensor, of float32
  int warmup = 5, calls = 20;
};

struct CollectiveTimes {
  CollectiveSpec spec;
  std::int64_t received_bytes = 0;  // by the first rank in a call, as it counted them
  std::vector<double> samples_ms;   // from the last rank's call to the last one's result
};

// Makes a group, and on each rank's thread its tensors, which all-reduce uses in place.
// Error{kUsage} when `bytes` is no whole number of float32 elements.
CollectiveTimes time_collective(const GroupFactory& make_group, const CollectiveSpec& spec);

// Rows: `times`. Algorithm bandwidth is the tensor's bytes per second, bus bandwidth what a rank
// gets from the others per second; in gigabytes (10⁹).
Table collective_table(const std::vector<CollectiveTimes>& times);

}  // namespace tracestep
