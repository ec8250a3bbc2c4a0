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

// True if the path is a folder with a config.json; the second function: if it also has weights that
// can be read.
bool is_model_folder(const std::filesystem::path& path);
bool has_family_weights(const std::filesystem::path& path);

// The files with the weights in a model's folder. Throws Error{kInput} if there are none, and for
// an index that is damaged or names files elsewhere. Symbolic links are followed, because downloads
// are stored as links.
std::vector<std::filesystem::path> family_weight_files(const std::filesystem::path& folder);

// True if the files hold a head whose first bytes differ from the embedding, though config.json
// says that the two are tied. It is for planning, which reads no weights.
bool has_own_head(const ReadModel& model);
std::string own_head_note(const std::filesystem::path& folder);

// Opens a model's weights: tensors have our names and our order of rows, and are read when they are
// asked for. Other contents of the files are left out: buffers of rotation and masks that agree
// with the config, the head of a tied model if it equals the embedding (else the model is untied,
// which a line says), and all but the text part of a multimodal model. Throws one Error{kInput} for
// all tensors that are missing, unknown or of another shape than by config.json, and for all
// buffers that contradict it; also for a config.json that is not wholly known.
// **Memory** of the host: one tensor.
SavedTensors open_family_weights(const std::filesystem::path& folder);

// The hash of all bytes of the files, as 16 hexadecimal digits.
std::string hash_of_family_weights(const std::filesystem::path& folder);

// The shapes of all parameters of a model, by name.
std::map<std::string, Shape> parameter_shapes(const ModelConfig& config);

// The direction of copy_rows() between our tensor and the family's; `theirs` has its rows from
// `begin` on (0 if it is transposed). `shape`: of our tensor; `size`: the bytes of an element.
enum class Rows { kToOurs, kToTheirs };
void copy_rows(Rows direction, const FamilyTensor& place, const Shape& shape, std::size_t size,
               std::span<std::byte> ours, std::span<std::byte> theirs, std::int64_t begin = 0);

}  // namespace tracestep
