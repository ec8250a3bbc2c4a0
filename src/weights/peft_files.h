// Adapters in PEFT's form: adapter_config.json and adapter_model.safetensors, under the names that
// the family's files have for the products; and adapters merged into their weights.
#pragma once

#include <filesystem>

#include "run/run_spec.h"
#include "weights/checkpoint_format.h"
#include "weights/whole_tensors.h"

namespace tracestep {

inline constexpr const char* kPeftWeights = "adapter_model.safetensors";

// The adapters among the tensors, by their metadata. Error{kInput} for tensors of which some are
// adapters and that do not say which.
Adapters adapters_of(const SavedTensors& from);

// Sets the adapters: from the folder run.lora.from, or from the seed, with B of zeros. Errors:
// kInput naming the folder and the tensor for adapters that are not those of run.lora, and kUsage
// for families whose files join what stands apart here (phi3's qkv_proj).
void start_adapters(const WholeTensors& to, const RunSpec& run);

// Loads the weights of the run's model (load_parameters()). Where they have no adapters these are
// set as above, and what a folder of adapters trains whole comes from there.
void load_weights(const WholeTensors& to, const RunSpec& run, const SavedTensors& from);

// Writes the folder, whole or not at all. `tensors` has the adapters of `model`; `base`: the folder
// of the published model that the weights began from, empty: they are named as a Llama's.
void write_peft_folder(const std::filesystem::path& path, const ModelConfig& model,
                       const Adapters& adapters, const std::filesystem::path& base,
                       const TensorsToSave& tensors);

// The weights without adapters, W + scale·B·A in the place of W, computed in float32 and rounded to
// W's dtype. **Memory** of the host: one weight in float32 and its adapter.
TensorsToSave merged(const TensorsToSave& tensors, const Adapters& adapters);

}  // namespace tracestep
