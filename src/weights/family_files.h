// The weights of a published model: a folder with its config.json and model.safetensors, or shards
// of it with an index, under the names of its family (nn/family_names.h).
#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "nn/families.h"
#include "nn/family_names.h"
#include "weights/saved_tensors.h"

namespace tracestep {

inline constexpr const char *kFamilyWeights = "model.safetensors",
                            *kFamilyIndex = "model.safetensors.index.json";

// True if the path is a folder with a config.json; the second: if it has weights that can be read.
bool is_model_folder(const std::filesystem::path& path);
bool has_family_weights(const std::filesystem::path& path);

// The files with the weights of a model's folder. Error{kInput} where it has none, and for an index
// that is damaged or names what lies elsewhere; links are followed, as downloads are stored so.
std::vector<std::filesystem::path> family_weight_files(const std::filesystem::path& folder);

// True if the files hold a head that differs from the embedding in its first bytes, though
// config.json calls them tied: for planning, which reads no weights.
bool has_own_head(const ReadModel& model);
std::string own_head_note(const std::filesystem::path& folder);

// Opens them: their tensors under our names, in our order of rows, read when they are asked for.
// Other contents of a file are left out: buffers of rotation and masks that say the same
// as the config, the head of a model that is tied, if it is the embedding (else the model is
// untied, which a line says), and in a file of a multimodal model all but its text part.
// Error{kInput}, one for all of them, for tensors that are missing, unknown, of another shape than
// by config.json or buffers that say something else; for a config.json that is not wholly known.
// **Memory** of the host: one tensor.
SavedTensors open_family_weights(const std::filesystem::path& folder);

// The hash of all bytes of the files, as 16 hexadecimal digits.
std::string hash_of_family_weights(const std::filesystem::path& folder);

// The shapes of all parameters of a model, by name.
std::map<std::string, Shape> parameter_shapes(const ModelConfig& config);

// Copies the rows of one of our tensors from or to their place in the family's. `theirs` begins
// with its row `begin` (0 where it is transposed). `ours`: its shape; `size`: bytes of an element.
enum class Rows { kToOurs, kToTheirs };
void copy_rows(Rows direction, const FamilyTensor& place, const Shape& shape, std::size_t size,
               std::span<std::byte> ours, std::span<std::byte> theirs, std::int64_t begin = 0);

}  // namespace tracestep
