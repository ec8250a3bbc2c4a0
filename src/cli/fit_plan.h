// The part of the command `fit` that plans a training on several devices: its flags and tables.
#pragma once

#include <string>

#include "cli/option_set.h"
#include "cli/token_input.h"
#include "lab/fit/on_devices.h"

namespace tracestep::cli {

struct PlanOptions : DevicesQuestion {
  // The data set that each epoch reads, if `tokens` is not given; its tokens are counted.
  TokenOptions data;
  double epochs = 0;  // 0: not given

  bool has_data() const { return !data.text.empty() || !data.tokens.empty(); }
  bool has_tokens() const { return tokens > 0 || has_data(); }
  bool is_training() const { return has_tokens() || days > 0; }
};
void add_plan_options(OptionSet& set, PlanOptions& options);
// Throws Error{kUsage} naming a flag of the training that conflicts with the others.
void check_training(const PlanOptions& options, const std::string& largest);

// If a data set is given, sets `tokens` to the number of its tokens over all epochs, and returns
// how they were counted: by the tokenizer that is asked for or lies in the model's folder. Throws
// Error{kInput} for files that cannot be read.
std::string count_tokens(const ModelConfig& model, PlanOptions& options);
// The flag that asks for a plan of a whole training, such as "--days"; nullptr if there is none.
const char* flag_of_training(const PlanOptions& options);

// A note on the link that is assumed between ranks: "; ranks of one host, linked by …".
std::string note_of_link(const PublishedDevice& device, int ranks);
// Says why the search for the fewest devices had no success; empty: it had.
std::string note_of(const Fitted& found);

}  // namespace tracestep::cli
