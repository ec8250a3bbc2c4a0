// memory --as pytorch, and the same rows beside ours in `fit`.
#pragma once

#include <filesystem>
#include <span>
#include <string>

#include "cli/options.h"
#include "lab/predict/time_source.h"
#include "lab/pytorch/tables.h"

namespace tracestep::cli {

struct PytorchOptions {
  std::string alloc_conf;        // as PYTORCH_CUDA_ALLOC_CONF
  std::int64_t outside_mib = 0;  // 0: as measured
  std::int64_t workspace_mib = PytorchCard{}.workspace_bytes >> 20;
  bool is_fused = false;  // the optimizer of an estimated step
};
void add_pytorch_options(OptionSet& set, PytorchOptions& options);

struct AsPytorch {
  const RunGrid& grid;
  const TimeOptions& times;
  const OutputOptions& output;
  const PytorchOptions& pytorch;
  const std::filesystem::path& snapshot;
  const std::filesystem::path& snapshot_json;
};
int run_as_pytorch(const AsPytorch& asked, std::span<const std::string> arguments);

// The step in PyTorch: as it was recorded where the run's captured module has that, else
// estimated. `ours_bytes`: of the same step here. Error{kInput} for a damaged recording.
PytorchQuestion pytorch_question(const RunSpec& run, std::int64_t limit_bytes,
                                 const PytorchOptions& options, std::int64_t ours_bytes);

}  // namespace tracestep::cli
