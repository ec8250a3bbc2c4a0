// The part of `fit` that plans a training on several devices: its flags, and its tables.
#pragma once

#include <string>

#include "cli/option_set.h"
#include "cli/token_input.h"
#include "lab/fit/on_devices.h"

namespace tracestep::cli {

struct PlanOptions : DevicesQuestion {
  TokenOptions data;  // read in each epoch, where `tokens` is not given; counted into it
  double epochs = 0;  // 0: not given

  bool has_data() const { return !data.text.empty() || !data.tokens.empty(); }
  bool has_tokens() const { return tokens > 0 || has_data(); }
  bool is_training() const { return has_tokens() || days > 0; }
};
void add_plan_options(OptionSet& set, PlanOptions& options);
// Error{kUsage} naming the flag of a training that does not go with the rest.
void check_training(const PlanOptions& options, const std::string& largest);

// Sets `tokens` to those of the data set in all epochs, where one is given, and says how they were
// counted: by the tokenizer that is asked for or lies in the model's folder. Errors: kInput for
// files that cannot be read.
std::string count_tokens(const ModelConfig& model, PlanOptions& options);
// The flag that makes it a training: "--days".
const char* flag_of_training(const PlanOptions& options);

// "; ranks of one host, linked by …": the link that such ranks are taken to have.
std::string note_of_link(const PublishedDevice& device, int ranks);
// Says why the search for the fewest devices ended before it found enough; empty: it did not.
std::string note_of(const Fitted& found);

}  // namespace tracestep::cli
