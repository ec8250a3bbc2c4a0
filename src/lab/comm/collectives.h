// Times collectives alone: every one of them, by size and number of ranks.
#pragma once

#include <string>
#include <vector>

#include "exec/rank_devices.h"
#include "lab/measure/measurement.h"
#include "lab/report/table.h"
#include "run/run_spec.h"

namespace tracestep {

inline const std::vector<std::string> kTimedCollectives = {"all_reduce", "reduce_scatter",
                                                           "all_gather"};

struct CollectiveSpec {
  std::string op = "all_reduce";
  int ranks = 2;
  std::int64_t bytes = 1 << 20;  // of the whole tensor, of float32
  int warmup = 5, calls = 20;
};

// "all_reduce of 1.00 MiB, 2 ranks", and what a driver's visit takes, relative to other cells.
std::string label_of(const CollectiveSpec& spec);
inline double visit_weight(const CollectiveSpec&) {
  return 1;
}

struct CollectiveTimes {
  CollectiveSpec spec;
  Status status = Status::kOk;
  std::string detail = {};          // why it is out of memory
  bool are_processes = false;       // the ranks; else they are threads of this one
  std::int64_t received_bytes = 0;  // by the first rank in a call, as it counted them
  // Threads: from the last rank's call to the last one's result. Processes: from one result to the
  // next on the first rank, by its device's clock, with calls back to back.
  std::vector<double> samples_ms = {};
};

// Makes tensors on the device of each rank of this process, which all-reduce uses in place. Out of
// memory is a result, not an exception. Error{kUsage} when `bytes` is no whole number of float32
// elements. `place`: of the run that the devices were made for.
CollectiveTimes time_collective(const RankDevices& devices, const Place& place,
                                const CollectiveSpec& spec);

// Rows: `times`. Algorithm bandwidth is the tensor's bytes per second, bus bandwidth what a rank
// gets from the others per second; in gigabytes (10⁹).
Table collective_table(const std::vector<CollectiveTimes>& times);

}  // namespace tracestep
