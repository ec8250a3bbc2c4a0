// Weights in a store: initialised from a seed, or read from safetensors files under the names of
// nn/transformer.h.
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

// Truncated normal at ±3σ: σ² = 2/(in+out) for matrices, σ = 1 for an embedding that is not the
// head as well; norm weights are one, biases and what is added to a norm's offset zero. A value
// depends only on (seed, tensor name, index), so it is the same on every device.
// States are initialised as well, by initialize_states(). Source: the course's reference model.
void initialize_parameters(Store& store, std::uint64_t seed);

// A quicker form for measurements, which make many models: uniform values with the same mean and
// variance, also a function of (seed, tensor name, index) only.
void initialize_for_timing(Store& store, std::uint64_t seed);

// Sets the states that do not start at zero: the loss scale, if there is one.
void initialize_states(Store& store);

// Sets a parameter or state; narrower numbers are widened where the store holds float64.
// Throws Error{kUsage} for another shape or dtype.
void load_tensor(Store& store, const std::string& name, const TensorView& value);

// Reads every parameter of the store, one at a time, widening as load_tensor() does. Throws
// Error{kInput} naming the tensor that is missing, has another shape or a dtype other than the
// parameter's, and for tensors the model does not have. Embeddings and head of a published model
// are resized where the model has another vocabulary: more rows are the mean of those there are.
void load_parameters(Store& store, const SavedTensors& from);
// True for a tensor with a row for each token.
bool is_of_vocabulary(std::string_view name);

// The model: its sizes by the shapes of its tensors, its number of heads and its architecture by
// the file's metadata, else by `fallback`. Throws Error{kInput} when the tensors are not such a
// model.
ModelConfig config_of(const SavedTensors& from, const ModelConfig& fallback);

// The sizes and the facts that config_of() cannot tell from shapes, for a file's metadata.
SavedTensors::Metadata metadata_of(const ModelConfig& config);

// Host copies of all parameters, or of all states whose name starts with `prefix`.
std::map<std::string, HostTensor> parameters_of(const Store& store);
std::map<std::string, HostTensor> states_of(const Store& store, std::string_view prefix);

}  // namespace tracestep
