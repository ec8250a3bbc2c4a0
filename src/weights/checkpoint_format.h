// The format of one checkpoint: a folder such as step-00000100 with the weights, the optimizer's
// states, the tokenizer and a description of the run, all with checksums. A single rank writes two
// files of whole tensors; each of several ranks writes a shard with its pieces (tensor_pieces.h),
// and the description says how they are put together. checkpoint_files.h manages a folder of
// several checkpoints, and run_checkpoints.h the cooperation of ranks.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/directory.h"
#include "base/json.h"
#include "weights/not_finite.h"
#include "weights/saved_tensors.h"

namespace tracestep {

struct Checkpoint {
  std::int64_t step = 0;
  std::filesystem::path folder;
  SavedTensors model, state;
  Json meta;              // the description that the run stored
  std::string tokenizer;  // The content of the tokenizer's file; empty: none was stored.
  std::string checksum;   // That of the description, as 16 hexadecimal digits.
  std::vector<std::string> warnings;  // About checkpoints that were skipped, and their damage.
};

// The name of a tokenizer's file in a checkpoint, from its content: tokenizer.json, which other
// programs know, or tokenizer.
const char* tokenizer_name(std::string_view content);

// The name of a step's checkpoint, "step-00000100", and its inverse; nullopt for any other name.
std::string checkpoint_name(std::int64_t step);
std::optional<std::int64_t> checkpoint_step(std::string_view name);

// What a checkpoint stores about a run besides tensors.
struct CheckpointRun {
  Json meta = {};
  std::string tokenizer = {};  // The content of the tokenizer's file; empty: there is none.
};

// Tensors that are computed one by one while they are written.
struct TensorsToSave {
  TensorTypes types;
  std::function<HostTensor(const std::string&)> get;
};

// The functions below write files to `folder`, which must be empty at first, and flush them. If
// they return a tensor, it is not finite, and the checkpoint must be abandoned. They throw
// Error{kOutput}.

// Writes the files of a single rank's checkpoint.
std::optional<NotFinite> write_checkpoint(const Directory& folder, std::int64_t step,
                                          const TensorsToSave& model, const TensorsToSave& state,
                                          const CheckpointRun& run);

struct FileFacts {
  std::int64_t bytes = 0;
  std::string checksum;  // XXH3, 16 hexadecimal digits
};

// Writes the shard of one of several ranks, with its pieces of weights and states.
std::optional<NotFinite> write_shard(const Directory& folder, int rank, int ranks,
                                     const TensorsToSave& pieces, FileFacts& facts);
// Writes the description, once all shards are written (`facts`, by rank). `model`, `state`: the
// tensors that ranks divide by `choice`.
void write_description(const Directory& folder, std::int64_t step, const Parallel& choice,
                       const SavedTensors::Table& model, const SavedTensors::Table& state,
                       const std::vector<FileFacts>& facts, const CheckpointRun& run);

enum class Verify {
  kAll,  // every byte
  // The description, and the names and sizes of the files that it lists. For a process of a run in
  // which another process verifies everything.
  kDescription,
};

// Reads the checkpoint of `step` in `root`, also in formats of earlier versions. Throws Error that
// says what is missing or damaged; a symbolic link in place of the folder or a file counts as
// damage.
Checkpoint read_checkpoint(const Directory& root, std::int64_t step, Verify verify);

}  // namespace tracestep
