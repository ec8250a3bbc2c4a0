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
  Place place = {};   // The device and the threads of one process.
  int processes = 1;  // The number of processes that share its steps, one for each rank.
  // The runs whose steps are executed, from which peaks and times are predicted.
  std::vector<RunSpec> runs = {};
  double steps = 0;             // The steps of each run, including those that are not timed.
  std::int64_t peak_bytes = 0;  // The peak if it is known otherwise; 0: the peak of the runs.
  std::int64_t host_bytes = 0;  // Host memory of each process besides that of its steps.
  double seconds = 0;           // Seconds besides those of the steps.
  bool has_time = true;         // False: the time cannot be predicted.
};

// The plan for this many steps of a run, with one process for each rank.
JobPlan plan_of_steps(const RunSpec& run, double steps);

// A cell of a command (cli/cells.h) and what it needs; a command without cells counts as one.
struct PlannedCell {
  std::string cell = {};  // The cell, such as "step:3"; empty: the whole command.
  Json key = {};          // Its fields that differ from the defaults.
  JobPlan needs = {};
};

// The predicted resources that a process of a job needs.
struct JobNeeds {
  std::int64_t peak_bytes = 0;    // The peak on its device; 0: not predicted.
  std::int64_t memory_bytes = 0;  // The host's memory, with a margin; 0: not predicted.
  double predicted_seconds = 0;   // The predicted time without a margin; 0: not predicted.
  int minutes = 0;                // The time with a margin; 0: not predicted.
  int cpus = 1;
  int gpus = 0;

  // The larger of each need, which suffices for both.
  JobNeeds operator|(const JobNeeds& other) const;
};

// The needs of these cells, run one after the other. `times`: nullptr if no times are known.
JobNeeds needs_of(std::span<const PlannedCell> cells, const Predictor* times);

// Estimates roughly the seconds that these cells take on this machine: by the FLOPs of their steps
// at rates that most machines reach; for cells without steps, the seconds that they name.
double rough_seconds(std::span<const PlannedCell> cells);

// Returns the margins of JobNeeds in words.
std::string margins_text();

}  // namespace tracestep::cli
