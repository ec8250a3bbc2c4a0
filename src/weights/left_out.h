// Tensors in the files of a published model that are not weights, because its config.json
// determines them: rotation frequencies, masks, a head that equals the embedding. Before one is
// left out, it is checked against the config.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include "nn/config.h"
#include "weights/safetensors.h"

namespace tracestep {

// True if the tensor with this name is one that transformers computes from the config and also
// saves.
bool is_buffer(std::string_view name);

// Says how the buffer contradicts the config; empty: it agrees. **Memory** of the host: the tensor.
std::string fault_of_buffer(const SafetensorsFile& file, const std::string& name,
                            const ModelConfig& model);

struct PlacedTensor {
  const SafetensorsFile& file;
  std::string name;
};

// True if both tensors have the same shape and numbers; at most this many bytes of each are
// compared.
bool hold_same(const PlacedTensor& a, const PlacedTensor& b,
               std::uint64_t most_bytes = std::numeric_limits<std::uint64_t>::max());

}  // namespace tracestep
