// Recognises files in the place of weights, or beside them in a folder.
#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>

namespace tracestep {

// The kind of a file that was given in place of weights, judged by its first bytes; used in
// messages.
struct ForeignFile {
  std::string_view what;  // The kind, such as "text"; empty: it is not known.
  std::string_view hint;  // How to make weights from it.
};

// Throws Error{kInput} if a folder has weights that are not read (an adapter, PyTorch archives,
// GGUF files and the like), saying what they are. Call it for a folder without a model's weights
// and without checkpoints.
void refuse_foreign_weights(const std::filesystem::path& folder);

// How many bytes of a file are enough to recognise it.
inline constexpr std::size_t kForeignStart = 512;

// Recognises a file. `start`: its first kForeignStart bytes, or all of it.
ForeignFile foreign_file(std::span<const std::byte> start);

// The index of weights in several safetensors files, as transformers writes it: the file of each
// tensor.
using WeightIndex = std::map<std::string, std::string>;  // tensor, file

// Parses a model.safetensors.index.json; `where` names it in messages. Throws Error{kInput} for
// text that is no index, and for a file outside the folder.
WeightIndex parse_weight_index(std::string_view text, const std::string& where);

}  // namespace tracestep
