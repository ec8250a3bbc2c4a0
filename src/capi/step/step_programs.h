// The programs of a library's runs: what a RunSpec means, with groups of parameters that have rates
// of their own.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "capi/tracestep.h"
#include "captured/captured_model.h"
#include "passes/optimizer.h"
#include "run/run_spec.h"
#include "runtime/store.h"

namespace tracestep::capi {

// A session's options, as values.
struct StepOptions {
  std::string words;
  OptimizerKind rule = OptimizerKind::kAdamw;
  double clip = 0.0;  // infinite: the norm is computed, and nothing clipped
  LossScaling loss_scaling = {};
  int accumulate = 1;
  std::vector<UpdateGroup> groups = {};  // without parameters: one group of all
};

// A captured folder, or a file with a forward program alone, whose inputs are all given.
// Errors: kInput naming the file.
std::shared_ptr<const CapturedModel> program_at(const std::filesystem::path& path);

// The run of the words, with this module if there is one. Error{kUsage} naming the word that there
// is not, that has a wrong value, or that is not for a library: of a model, a batch, ranks.
RunSpec run_of_words(const std::string& words, std::shared_ptr<const CapturedModel> module);

// The program of a run of this kind, after all passes, for the device's kernels. UPDATE is that of
// the store's parameters and gradients. Where the run has ranks, losses and gradients are summed
// over them by BACKWARD, STEP and UPDATE; a loss is always of the mean over all ranks.
// Error{kUsage}: what passes refuse, a parameter in no group.
Program program_of_kind(tracestep_kind kind, const RunSpec& run, const StepOptions& options,
                        const Store& store);

}  // namespace tracestep::capi
