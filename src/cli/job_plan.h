// Predicts the resources that a command will need, from its options: job scripts request them
// (cli/sbatch.cpp).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "run/run_spec.h"

namespace tracestep {
struct Predictor;  // lab/predict/predict.h
}  // namespace tracestep

namespace tracestep::cli {

struct JobPlan {
  Place place = {};                // device and threads of one process
  int processes = 1;               // processes that share its steps, one for each rank
  std::vector<RunSpec> runs = {};  // whose steps it runs: their peaks and times can be predicted
  double steps = 0;                // of each run, also those before the clock counts
  std::int64_t peak_bytes = 0;     // known otherwise; 0: that of the runs
  std::int64_t host_bytes = 0;     // of each process, besides what its steps hold
  double seconds = 0;              // besides the steps
  bool has_time = true;            // false: nothing predicts how long it takes
};

// The plan of so many steps of this run. Its ranks are processes of their own.
JobPlan plan_of_steps(const RunSpec& run, double steps);

// A cell of a command (cli/cells.h) with what it needs; a command that has none is one by itself.
struct PlannedCell {
  std::string cell = {};  // "step:3"; empty: all that the command does
  Json key = {};          // its fields that are not as usual
  JobPlan needs = {};
};

// How much of a machine a process of a job needs, from what is predicted.
struct JobNeeds {
  std::int64_t peak_bytes = 0;    // on its device; 0: not predicted
  std::int64_t memory_bytes = 0;  // of the host, with a margin; 0: not predicted
  double predicted_seconds = 0;   // 0: not predicted
  int minutes = 0;                // with a margin; 0: not predicted
  int cpus = 1;
  int gpus = 0;

  // The larger of each need, which suffices for both.
  JobNeeds operator|(const JobNeeds& other) const;
};

// The needs of all these together, one after the other. `times`: nullptr when none are known.
JobNeeds needs_of(std::span<const PlannedCell> cells, const Predictor* times);

// How long they take here, to within a factor of some: by the FLOPs of their steps, at rates that
// most machines reach; without steps, the most that they take.
double rough_seconds(std::span<const PlannedCell> cells);

// The margins, in words.
std::string margins_text();

}  // namespace tracestep::cli
