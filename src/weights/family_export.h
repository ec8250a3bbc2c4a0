// Writes a model in the format that transformers reads: config.json, model.safetensors or shards of
// it with an index, and the files that lay beside the weights from which it was trained.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "nn/config.h"
#include "weights/checkpoint_format.h"

namespace tracestep {

struct FamilyExport {
  ModelConfig model;  // The model whose parameters `tensors` has.
  // The folder of the published model from which it was trained; empty: none.
  std::filesystem::path origin;
  bool has_tokenizer_of_origin = true;
  // The content of a tokenizer other than the origin's; empty: none.
  std::string tokenizer_json = {};
  // True: that tokenizer was made here, so a tokenizer_config.json is written for it.
  bool has_own_tokenizer = false;
  // The dtype of the files; nullopt: that of the origin, else that of the tensors.
  std::optional<DType> dtype = {};
  // The most bytes of tensors in a file; a larger tensor has a file of its own.
  std::int64_t shard_bytes = 5'000'000'000;
};

// Writes the folder, which must not exist or be empty: whole or not at all. config.json and the
// other files are the origin's, byte for byte but for fields that are no longer true; a model
// without an origin is written as a Llama. Errors: kUsage for a model that is not the origin's, or
// no Llama; kNotFinite for a tensor that is not finite, or not in `dtype`; kOutput.
// **Memory** of the host: one tensor of the family's.
void write_family_folder(const std::filesystem::path& folder, const FamilyExport& what,
                         const TensorsToSave& tensors);

}  // namespace tracestep
