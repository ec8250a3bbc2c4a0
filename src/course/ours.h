// Finds our own times by the keys of published tables: size, context, precision and pass.
#pragma once

#include <map>
#include <string>

#include "course/published.h"
#include "run/run_spec.h"

namespace tracestep {

// True if the row is of this run: no field that tells runs apart has another value. What the row
// does not state is as usual, except the fields that all rows state (label_of()).
bool is_of_run(const ResultRow& row, const RunSpec& run);
// True if the row, of attention alone, is of this run: it compares only the fields that have a
// meaning there. `any_ops`: the granularity may differ.
bool is_of_attention_run(const ResultRow& row, const RunSpec& run, bool any_ops);

// Finds our median times of the runs that published cells show: eager, with naive attention, in
// primitive ops; in fused ones if no row of ours has primitive ones.
class OurTimes {
 public:
  explicit OurTimes(const ReplayInput& ours);

  // Our time of the cell in ms, where backward is forward-backward minus forward; 0 when there is
  // none.
  double find(const PublishedTime& t) const;

  const std::string& gpu() const { return gpu_; }

 private:
  std::map<std::string, double> ms_;  // by label_of() the run
  Granularity ops_;
  std::string gpu_;
};

}  // namespace tracestep
