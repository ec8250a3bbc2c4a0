// The part of `fit` that plans a training on several devices: its flags, and its tables.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/option_set.h"
#include "cli/token_input.h"
#include "lab/fit/on_devices.h"
#include "lab/predict/time_source.h"
#include "spec/run_grid.h"

namespace tracestep::cli {

constexpr const char* kLargestModel = "model";  // of --largest

struct PlanOptions : DevicesQuestion {
  TokenOptions data;  // read in each epoch, where `tokens` is not given; counted into it
  double epochs = 0;  // 0: not given

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

// The parts of the above that are about data (cli/fit_data.cpp).
void add_data_options(OptionSet& set, PlanOptions& options);
void check_data(const PlanOptions& options);
// The flag that makes it a training: "--days".
const char* flag_of_training(const PlanOptions& options);

// "; ranks of one host, linked by …": the link that such ranks are taken to have.
std::string note_of_link(const PublishedDevice& device, int ranks);
// Says why the search for the fewest devices ended before it found enough; empty: it did not.
std::string note_of(const Fitted& found);

}  // namespace tracestep::cli
