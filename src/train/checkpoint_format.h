// One checkpoint: the folder step-00000100 with the weights, the optimizer's states and the
// description of their run, all with checksums. Managing the folder of several checkpoints is left
// to checkpoint_files.h.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/directory.h"
#include "base/json.h"
#include "train/safetensors.h"

namespace tracestep {

struct Checkpoint {
  std::int64_t step = 0;
  std::filesystem::path folder;
  SafetensorsFile model, state;
  Json meta;                          // what the run stored
  std::vector<std::string> warnings;  // skipped checkpoints and their damage
};

// "step-00000100", and its inverse: nullopt for any other name.
std::string checkpoint_name(std::int64_t step);
std::optional<std::int64_t> checkpoint_step(std::string_view name);

// Writes the checkpoint's files to `folder`, which must be empty, and flushes them. Errors:
// kOutput.
void write_checkpoint(const Directory& folder, std::int64_t step, const TensorMap& model,
                      const TensorMap& state, const Json& meta);

// The checkpoint of `step` in `root`, every byte verified; also reads the schema
// tracestep.checkpoint/1 of earlier versions. Errors: Error saying what is missing or damaged; a
// symbolic link in place of the folder or of a file counts as damage.
Checkpoint read_checkpoint(const Directory& root, std::int64_t step);

}  // namespace tracestep
