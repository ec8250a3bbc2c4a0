// Implements `memory --as pytorch`, and the same rows beside ours in `fit`.
#pragma once

#include <filesystem>
#include <span>
#include <string>

#include "cli/options.h"
#include "lab/predict/time_source.h"
#include "lab/pytorch/tables.h"

namespace tracestep::cli {

struct PytorchOptions {
  std::string alloc_conf;  // The allocator's settings, as in PYTORCH_CUDA_ALLOC_CONF.
  // The MiB that PyTorch uses outside its allocator; 0: as many as were measured on a GPU.
  std::int64_t outside_mib = 0;
  std::int64_t workspace_mib = PytorchCard{}.workspace_bytes >> 20;
  bool is_fused = false;  // True: an estimated step uses a fused optimizer.
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

// The run's step in PyTorch: as recorded, if the run's captured module has a recording, else
// estimated. `ours_bytes`: the peak of the same step here. Throws Error{kInput} for a damaged
// recording.
PytorchQuestion pytorch_question(const RunSpec& run, std::int64_t limit_bytes,
                                 const PytorchOptions& options, std::int64_t ours_bytes);

}  // namespace tracestep::cli
