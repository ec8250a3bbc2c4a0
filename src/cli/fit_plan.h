// The part of `fit` that plans a training on several devices: its flags, and its tables.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/option_set.h"
#include "cli/time_source.h"
#include "lab/memory/plan.h"
#include "spec/run_grid.h"

namespace tracestep::cli {

constexpr const char* kLargestModel = "model";  // of --largest

struct PlanOptions {
  std::int64_t gpus = 0, nodes = 0;  // 0: not given
  double link_gb_s = 0, network_gb_s = 0;
  std::int64_t tokens = 0;
  double days = 0, cost_per_hour = 0;
  bool is_smallest = false;  // the fewest devices that do

  bool has_devices() const { return gpus > 0 || is_smallest; }
  bool is_training() const { return tokens > 0 || days > 0; }
};
void add_plan_options(OptionSet& set, PlanOptions& options);
// Error{kUsage} naming the flag for what does not go together.
void check_plan(const PlanOptions& options, const RunGrid& grid, const std::string& largest);

// `grid` on a GPU, where devices are to be planned and none is named.
RunGrid on_planned_device(RunGrid grid, const PlanOptions& options);
// What predicts times, with the link between the devices that share the step; nullopt: nothing
// does. Error{kUsage} naming the flag of a link that is not known.
std::optional<Predictor> predictor_of(const TimeSource& source, const RunSpec& run,
                                      const PlanOptions& options);

// What `fit` has found.
struct Fitted {
  std::vector<Table> tables = {};
  std::vector<Remedy> plans = {};  // the best first
  std::optional<Link> link = {};   // between the devices of a plan
};

// What so many devices do, or the fewest that fit; without a plan, the least memory that would do.
Fitted fit_on_devices(const FitQuestion& asked, const PlanOptions& options,
                      const TimeSource& source);
// The largest model that fits, of those that are known by name.
Fitted largest_model(const FitQuestion& asked, const PlanOptions& options,
                     const TimeSource& source);
// The training that the options and the device mean.
Training training_of(const PlanOptions& options, const TimeSource& source, int devices);

}  // namespace tracestep::cli
