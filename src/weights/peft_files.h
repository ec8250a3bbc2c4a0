// Reads and writes adapters in PEFT's format (adapter_config.json and adapter_model.safetensors,
// with the names that the family's files give to products), and merges adapters into weights.
#pragma once

#include <filesystem>

#include "run/run_spec.h"
#include "weights/checkpoint_format.h"
#include "weights/whole_tensors.h"

namespace tracestep {

inline constexpr const char* kPeftWeights = "adapter_model.safetensors";

// The adapters that the tensors contain, by their metadata. Throws Error{kInput} if some tensors
// are adapters but the metadata does not describe them.
Adapters adapters_of(const SavedTensors& from);

// Sets the adapters from the folder run.lora.from, or from the seed, with zeros for B. Throws
// Error{kInput} naming the folder and the tensor if the adapters are not those of run.lora, and
// Error{kUsage} for families whose files join weights that are separate here (phi3's qkv_proj).
void start_adapters(const WholeTensors& to, const RunSpec& run);

// Loads the weights of the run's model (load_parameters()). If they contain no adapters, those are
// set by start_adapters(), and parts that a folder of adapters has trained whole are loaded from
// it.
void load_weights(const WholeTensors& to, const RunSpec& run, const SavedTensors& from);

// Writes a folder in PEFT's format, whole or not at all. `tensors` has the adapters of `model`;
// `base`: the folder of the published model from which the weights were trained; empty: the
// adapters get the names of a Llama's.
void write_peft_folder(const std::filesystem::path& path, const ModelConfig& model,
                       const Adapters& adapters, const std::filesystem::path& base,
                       const TensorsToSave& tensors);

// The weights with adapters merged into them: W + scale·B·A in place of W, computed in float32 and
// rounded to W's dtype. **Memory** of the host: one weight in float32 and its adapter.
TensorsToSave merged(const TensorsToSave& tensors, const Adapters& adapters);

}  // namespace tracestep
