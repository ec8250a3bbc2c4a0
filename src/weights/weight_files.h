// Files that stand beside weights in a folder, or were given in their place.
#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>

namespace tracestep {

// The kind of a file that was given in the place of weights, by its first bytes: for messages.
struct ForeignFile {
  std::string_view what;  // "text": empty where it is none of those known
  std::string_view hint;  // how to make weights of it
};

// Error{kInput} that says what the weights of a folder are where it has none that are read, but an
// adapter, PyTorch archives, GGUF files and the like. To be asked about a folder without a model's
// weights or checkpoints.
void refuse_foreign_weights(const std::filesystem::path& folder);

inline constexpr std::size_t kForeignStart = 512;  // bytes that tell

// `start`: the first kForeignStart bytes of the file, or all of it.
ForeignFile foreign_file(std::span<const std::byte> start);

// The index of weights in several safetensors files, as transformers writes it: which of the files
// beside it has which tensor.
using WeightIndex = std::map<std::string, std::string>;  // tensor, file

// `text`: model.safetensors.index.json; `where` names it in messages. Error{kInput} where it is no
// index, and for a file that does not lie beside it.
WeightIndex parse_weight_index(std::string_view text, const std::string& where);

}  // namespace tracestep
