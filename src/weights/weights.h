// Weights that a command starts from, and the tokenizer that belongs to them, by one rule for every
// command: the one asked for, else the one saved with the weights, beside their file or in their
// checkpoint; and for a text bytes, where nothing speaks against them.
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
  std::filesystem::path path;  // as it was given
  SavedTensors tensors;
  std::filesystem::path tokenizer_path;       // of the file that their tokenizer has or would have
  std::optional<std::string> tokenizer_file;  // of a checkpoint: its content; empty: there is none
};

// A safetensors file, a folder with a published model (family_files.h), or the newest complete
// checkpoint of a folder, as CheckpointWriter::load(). Errors: kInput.
Weights open_weights(const std::filesystem::path& path);
// The weights of `checkpoint`, in the folder `path`.
Weights weights_of(const std::filesystem::path& path, const Checkpoint& checkpoint);

// Where the tokenizer of a file of weights is saved: W.safetensors.tokenizer.
std::filesystem::path tokenizer_beside(const std::filesystem::path& weights);

// The functions below: `weights`: nullptr: new ones. `asked`: nullptr: none was asked for; one that
// is not that of the weights gives a warning. Errors: kInput for a saved tokenizer that is damaged
// or, by the hash in the metadata of the weights, that of others.

// nullptr where no tokenizer is known.
std::unique_ptr<Tokenizer> tokenizer_of(const Weights* weights, std::unique_ptr<Tokenizer> asked);
// The tokenizer of the weights, for commands that only print numbers and so can do without: if that
// of a published model cannot be read, a warning tells it.
std::unique_ptr<Tokenizer> tokenizer_for_numbers(const Weights* weights);
// The tokenizer for a text, which needs one. New weights take bytes; so do weights without a known
// tokenizer whose vocabulary is that of bytes, and a line says it. Errors: also kUsage for any
// others.
std::unique_ptr<Tokenizer> tokenizer_for_text(const Weights* weights,
                                              std::unique_ptr<Tokenizer> asked);

// Error{kUsage} with both sizes where the tokenizer has more entries than the model's vocabulary.
// Fewer are usual, as published models round theirs up: a line says it.
void check_entries(const Tokenizer& tokenizer, std::int64_t vocab);

}  // namespace tracestep
