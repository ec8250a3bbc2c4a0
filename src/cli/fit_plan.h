// The part of `fit` that plans a training on several devices: its flags, and its tables.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/option_set.h"
#include "cli/time_source.h"
#include "cli/token_input.h"
#include "lab/fit/largest.h"
#include "lab/fit/plan.h"
#include "spec/run_grid.h"

namespace tracestep::cli {

constexpr const char* kLargestModel = "model";  // of --largest

struct PlanOptions {
  std::int64_t gpus = 0, nodes = 0;  // 0: not given
  double link_gb_s = 0, network_gb_s = 0;
  std::int64_t tokens = 0;  // as given, or in all epochs
  TokenOptions data;        // read in each epoch
  double epochs = 0;        // 0: not given
  double days = 0, cost_per_hour = 0;
  bool is_smallest = false;       // the fewest devices that do
  bool is_batch_assumed = false;  // and follows from the number of devices

  bool has_devices() const { return gpus > 0 || is_smallest; }
  bool has_data() const { return !data.text.empty() || !data.tokens.empty(); }
  bool has_tokens() const { return tokens > 0 || has_data(); }
  bool is_training() const { return has_tokens() || days > 0; }
};
void add_plan_options(OptionSet& set, PlanOptions& options);
// Error{kUsage} naming the flag for what does not go together.
void check_plan(const PlanOptions& options, const RunGrid& grid, const std::string& largest);

// Sets `tokens` to those of the data set in all epochs, where one is given, and says how they were
// counted: by the tokenizer that is asked for or lies in the model's folder. Errors: kInput for
// files that cannot be read.
std::string count_tokens(const ModelConfig& model, PlanOptions& options);
// `grid` on a GPU, where devices are to be planned and none is named.
RunGrid on_planned_device(RunGrid grid, const PlanOptions& options);
// The predictor of times, with the link between the devices that share the step; nullopt: nothing
// predicts them. Error{kUsage} naming the flag of a link that is not known.
std::optional<Predictor> predictor_of(const TimeSource& source, const RunSpec& run,
                                      const PlanOptions& options);

// The answer of `fit`.
struct Fitted {
  std::vector<Table> tables = {};
  std::vector<Remedy> plans = {};  // the best first
  std::optional<Link> link = {};   // between the devices of a plan
  std::int64_t batch = 0;          // shared by these devices; 0: as asked
};

// The parts of the above that are about data (cli/fit_data.cpp).
void add_data_options(OptionSet& set, PlanOptions& options);
void check_data(const PlanOptions& options);
// The flag that makes it a training: "--days".
const char* flag_of_training(const PlanOptions& options);

// Plans for so many devices, or for the fewest that fit; if none does, the least memory that would
// do. The search takes more devices never to do worse: a batch that they cannot share is raised to
// the next one that they can.
Fitted fit_on_devices(const FitQuestion& asked, const PlanOptions& options,
                      const TimeSource& source);
// The largest batch or context on so many devices.
Fitted largest_on_devices(const FitQuestion& asked, Growth growth, const PlanOptions& options,
                          const TimeSource& source);
// The largest model that fits, of those that are known by name.
Fitted largest_model(const FitQuestion& asked, const PlanOptions& options,
                     const TimeSource& source);
// The training that the options and the device mean.
Training training_of(const PlanOptions& options, const TimeSource& source, int devices);

}  // namespace tracestep::cli
