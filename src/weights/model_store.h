// Sets the weights in a store: initialised from a seed, or read from safetensors files with the
// names of nn/transformer.h.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

#include "nn/config.h"
#include "runtime/store.h"
#include "weights/safetensors.h"
#include "weights/saved_tensors.h"

namespace tracestep {

// Initialises parameters and states. Weights are truncated normal at ±3σ, with σ² = 2/(in+out) for
// matrices and σ = 1 for an embedding that is not also the head; norm weights are one (zero if the
// norm adds an offset to them), and biases are zero. A value depends only on (seed, tensor name,
// index), so it is the same on every device. Source: the course's reference model.
void initialize_parameters(Store& store, std::uint64_t seed);

// A faster initialisation for measurements, which make many models: uniform values with the same
// mean and variance, which also depend only on (seed, tensor name, index). Devices that can make
// them in their own memory (runtime/value_filler.h) do, with the same bits.
void initialize_for_timing(Store& store, std::uint64_t seed);

// Sets the states that do not start at zero, which is the loss scale if there is one.
void initialize_states(Store& store);

// Sets a parameter or state from a tensor; a narrower type is widened if the store holds float64.
// Throws Error{kUsage} for another shape or dtype.
void load_tensor(Store& store, const std::string& name, const TensorView& value);

// Reads every parameter of the store, one at a time, widened as by load_tensor(). Throws
// Error{kInput} naming a tensor that is missing, has another shape or a dtype other than the
// parameter's, or that the model does not have. If the model has another vocabulary than the
// published one, embeddings and head are resized; further rows are the mean of the existing ones.
void load_parameters(Store& store, const SavedTensors& from);
// True for a tensor with a row for each token.
bool is_of_vocabulary(std::string_view name);

// The model of these tensors: its sizes from their shapes; heads and architecture from the file's
// metadata, else from `fallback`. Throws Error{kInput} if the tensors are no such model.
ModelConfig config_of(const SavedTensors& from, const ModelConfig& fallback);

// The sizes, and what config_of() cannot tell from shapes, as metadata for a file.
SavedTensors::Metadata metadata_of(const ModelConfig& config);

// Host copies of all parameters, or of all states whose name starts with `prefix`.
std::map<std::string, HostTensor> parameters_of(const Store& store);
std::map<std::string, HostTensor> states_of(const Store& store, std::string_view prefix);

}  // namespace tracestep
