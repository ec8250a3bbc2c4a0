// Times collectives by themselves, by kind, size and number of ranks.
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
  std::int64_t bytes = 1 << 20;  // The size of the whole float32 tensor.
  int warmup = 5, calls = 20;
};

// label_of() returns a row's label ("all_reduce of 1.00 MiB, 2 ranks"); visit_weight() the time of
// one measurement of a spec relative to other specs.
std::string label_of(const CollectiveSpec& spec);
inline double visit_weight(const CollectiveSpec&) {
  return 1;
}

struct CollectiveTimes {
  CollectiveSpec spec;
  Status status = Status::kOk;
  std::string detail = {};  // Why memory ran out.
  // True: the ranks are processes; false: they are threads of this process.
  bool are_processes = false;
  // The bytes that the first rank received in a call, as it counted them.
  std::int64_t received_bytes = 0;
  // With threads: the time from the last rank's call to the last rank's result. With processes: the
  // time between two results on the first rank, by its device's clock, while calls follow each
  // other without a pause.
  std::vector<double> samples_ms = {};
};

// Times a collective on tensors that it makes on the device of each rank of this process;
// all_reduce works in place. Running out of memory is a result, not an exception. Throws
// Error{kUsage} if `bytes` is no whole number of float32 elements. `place`: that of the run for
// which the devices were made.
CollectiveTimes time_collective(const RankDevices& devices, const Place& place,
                                const CollectiveSpec& spec);

// Makes a row for each of `times`. Algorithm bandwidth is the tensor's bytes per second; bus
// bandwidth is what a rank receives from the others per second. Both are in GB/s (10⁹ bytes).
Table collective_table(const std::vector<CollectiveTimes>& times);

}  // namespace tracestep
