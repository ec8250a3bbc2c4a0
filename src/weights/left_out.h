// Tensors in the files of a published model that are none of its weights, because its config.json
// says the same: frequencies of rotation, masks, a head that is the embedding. Whoever leaves one
// out looks first whether it does.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include "nn/config.h"
#include "weights/safetensors.h"

namespace tracestep {

// True if the name is of a tensor that transformers computes from the config and saves as well.
bool is_buffer(std::string_view name);

// How the buffer contradicts the model; empty: it agrees. **Memory** of the host: the tensor.
std::string fault_of_buffer(const SafetensorsFile& file, const std::string& name,
                            const ModelConfig& model);

struct PlacedTensor {
  const SafetensorsFile& file;
  std::string name;
};

// True if both have the same shape and numbers; of each at most so many bytes are compared.
bool hold_same(const PlacedTensor& a, const PlacedTensor& b,
               std::uint64_t most_bytes = std::numeric_limits<std::uint64_t>::max());

}  // namespace tracestep
