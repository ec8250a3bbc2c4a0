// Makes the programs of the library's runs: a RunSpec's step, with groups of parameters that have
// their own rates.
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
  // The bound on the gradient norm; infinite: the norm is computed but nothing is clipped.
  double clip = 0.0;
  LossScaling loss_scaling = {};
  int accumulate = 1;
  // Groups of parameters; a single group without names holds all parameters.
  std::vector<UpdateGroup> groups = {};
};

// Reads a captured folder, or a file with only a forward program, whose inputs the caller all
// gives. Throws Error{kInput} naming the file.
std::shared_ptr<const CapturedModel> program_at(const std::filesystem::path& path);

// Returns the run that the words describe, with this module unless it is nullptr. Throws
// Error{kUsage} naming a word that is unknown, has a wrong value, or is not for the library (of a
// model, a batch, ranks).
RunSpec run_of_words(const std::string& words, std::shared_ptr<const CapturedModel> module);

// Returns the program of this kind of run after all passes, for the device's kernels. UPDATE
// updates the store's parameters by its gradients. With ranks, BACKWARD, STEP and UPDATE sum losses
// and gradients over them; a loss is always the mean over all ranks. Throws Error{kUsage} for what
// passes refuse, and for a parameter that is in no group.
Program program_of_kind(tracestep_kind kind, const RunSpec& run, const StepOptions& options,
                        const Store& store);

}  // namespace tracestep::capi
