// One checkpoint: the folder step-00000100 with the weights, the optimizer's states, the tokenizer
// of the text and the description of their run, all with checksums. One rank writes two files of
// whole tensors; each of several ranks writes a shard, which holds its pieces (tensor_pieces.h),
// and the description says how they are put together. Managing the folder of several checkpoints is
// left to checkpoint_files.h, the ranks' cooperation to run_checkpoints.h.
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
  Json meta;                          // the description that the run stored
  std::string tokenizer;              // the content of its file; empty: none was stored
  std::string checksum;               // of its description, 16 hexadecimal digits
  std::vector<std::string> warnings;  // skipped checkpoints and their damage
};

// The file of a tokenizer with this content, in the folder of a checkpoint: the name by which
// others know it, tokenizer.json, or tokenizer.
const char* tokenizer_name(std::string_view content);

// "step-00000100", and its inverse: nullopt for any other name.
std::string checkpoint_name(std::int64_t step);
std::optional<std::int64_t> checkpoint_step(std::string_view name);

// The facts about a run that a checkpoint stores besides tensors.
struct CheckpointRun {
  Json meta = {};
  std::string tokenizer = {};  // the content of its file; empty: none is known
};

// Tensors that are made one by one when they are written.
struct TensorsToSave {
  TensorTypes types;
  std::function<HostTensor(const std::string&)> get;
};

// The functions that write: every file goes to `folder`, which must be empty at first, and is
// flushed. Where they return a tensor, it is not finite, and the checkpoint must be given up.
// Errors: kOutput.

// The checkpoint of one rank.
std::optional<NotFinite> write_checkpoint(const Directory& folder, std::int64_t step,
                                          const TensorsToSave& model, const TensorsToSave& state,
                                          const CheckpointRun& run);

struct FileFacts {
  std::int64_t bytes = 0;
  std::string checksum;  // XXH3, 16 hexadecimal digits
};

// The shard of one of several ranks, with its pieces of weights and states.
std::optional<NotFinite> write_shard(const Directory& folder, int rank, int ranks,
                                     const TensorsToSave& pieces, FileFacts& facts);
// The rest, once all shards (`facts`, by rank) are there. `model`, `state`: the tensors that
// `choice` divides.
void write_description(const Directory& folder, std::int64_t step, const Parallel& choice,
                       const SavedTensors::Table& model, const SavedTensors::Table& state,
                       const std::vector<FileFacts>& facts, const CheckpointRun& run);

enum class Verify {
  kAll,          // every byte
  kDescription,  // with the names and sizes of files: for a process beside one that verified all
};

// The checkpoint of `step` in `root`; also reads the schemas of earlier versions. Errors: Error
// saying what is missing or damaged; a symbolic link in place of the folder or of a file counts as
// damage.
Checkpoint read_checkpoint(const Directory& root, std::int64_t step, Verify verify);

}  // namespace tracestep
