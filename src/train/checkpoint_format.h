// One checkpoint: the folder step-00000100 with the weights, the optimizer's states, and what run
// they belong to, under checksums. What surrounds it is left to checkpoint_files.h.
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
  std::vector<std::string> warnings;  // what was damaged and therefore passed over, and how
};

// "step-00000100", and back: nullopt for any other name.
std::string checkpoint_name(std::int64_t step);
std::optional<std::int64_t> checkpoint_step(std::string_view name);

// Writes its files to `folder`, which is empty, and flushes them. Errors: kOutput.
void write_checkpoint(const Directory& folder, std::int64_t step, const TensorMap& model,
                      const TensorMap& state, const Json& meta);

// The checkpoint of `step` below `root`, every byte verified; also one with the schema
// tracestep.checkpoint/1 of earlier versions. Errors: Error saying what is missing or damaged; a
// symbolic link in the place of the folder or of a file counts as damage.
Checkpoint read_checkpoint(const Directory& root, std::int64_t step);

}  // namespace tracestep
