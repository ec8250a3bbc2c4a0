// The weights that a command starts from, and their tokenizer, by one rule for every command: the
// tokenizer that is asked for, else the one saved with the weights (beside their file or in their
// checkpoint), else, for a text, bytes if nothing contradicts that.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "tokens/tokenizer.h"
#include "weights/checkpoint_files.h"

namespace tracestep {

struct Weights {
  std::filesystem::path path;  // The path as it was given.
  SavedTensors tensors;
  // The path of the file in which their tokenizer is, or would be, saved.
  std::filesystem::path tokenizer_path;
  // For a checkpoint: the content of its tokenizer's file, which is empty if it has none.
  std::optional<std::string> tokenizer_file;
};

// Opens a safetensors file, a folder with a published model (family_files.h), or the newest
// complete checkpoint of a folder, as CheckpointWriter::load(). Throws Error{kInput}.
Weights open_weights(const std::filesystem::path& path);
// The weights of `checkpoint`, in the folder `path`.
Weights weights_of(const std::filesystem::path& path, const Checkpoint& checkpoint);

// The path where the tokenizer of a file of weights is saved: W.safetensors.tokenizer.
std::filesystem::path tokenizer_beside(const std::filesystem::path& weights);

// In the functions below `weights` is nullptr for new weights, and `asked` is nullptr if no
// tokenizer was asked for; one that differs from that of the weights gives a warning. They throw
// Error{kInput} for a saved tokenizer that is damaged or, by the hash in the weights' metadata,
// belongs to other weights.

// The tokenizer of the weights; nullptr if none is known.
std::unique_ptr<Tokenizer> tokenizer_of(const Weights* weights, std::unique_ptr<Tokenizer> asked);
// The tokenizer of the weights, for commands that only print numbers and can do without: if that of
// a published model cannot be read, this is only a warning.
std::unique_ptr<Tokenizer> tokenizer_for_numbers(const Weights* weights);
// The tokenizer for a text, which needs one. New weights use bytes; so do weights without a known
// tokenizer whose vocabulary has the size of that of bytes, which a line says. Throws Error{kUsage}
// for other weights without a tokenizer.
std::unique_ptr<Tokenizer> tokenizer_for_text(const Weights* weights,
                                              std::unique_ptr<Tokenizer> asked);

// Throws Error{kUsage} with both sizes if the tokenizer has more entries than the model's
// vocabulary. Fewer are usual, because published models round their vocabulary up; a line says so.
void check_entries(const Tokenizer& tokenizer, std::int64_t vocab);

}  // namespace tracestep
