// A model as transformers reads it: config.json, model.safetensors or shards of it with an index,
// and what lay beside the weights that it began from.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "nn/config.h"
#include "weights/checkpoint_format.h"

namespace tracestep {

struct FamilyExport {
  ModelConfig model;             // whose parameters `tensors` are
  std::filesystem::path origin;  // the folder of the published model that it is; empty: none
  bool has_tokenizer_of_origin = true;
  std::string tokenizer_json = {};  // the content of another one; empty: none
  bool has_own_tokenizer = false;   // which was made here, and has no tokenizer_config.json yet
  std::optional<DType> dtype = {};  // of the files; nullopt: that of the origin, else the tensors'
  std::int64_t shard_bytes = 5'000'000'000;  // the most in a file, unless one tensor has more
};

// Writes the folder, which must not exist or be empty: whole or not at all. config.json and the
// other files are the origin's, byte for byte but for fields that are no longer true; a model
// without an origin is written as a Llama. Errors: kUsage for a model that is not the origin's, or
// no Llama; kNotFinite for a tensor that is not finite, or not in `dtype`; kOutput.
// **Memory** of the host: one tensor of the family's.
void write_family_folder(const std::filesystem::path& folder, const FamilyExport& what,
                         const TensorsToSave& tensors);

}  // namespace tracestep
