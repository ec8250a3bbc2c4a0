// Finds the first infinity or NaN in given tensors or among the results of a step.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "ir/program.h"
#include "weights/safetensors.h"

namespace tracestep {

class Executor;
class SavedTensors;

struct NotFinite {
  // The tensor: "lm_head.weight", "the result of softmax at layers.0.attn (forward)".
  std::string what;
  DType dtype = DType::kF32;
  // The numbers of infinite elements, of NaN elements, and of all elements of the tensor.
  std::int64_t infinite = 0, nan = 0, count = 0;
  std::optional<Phase> phase = {};  // The phase of a result; nullopt for a weight.

  // A message: "lm_head.weight holds 2 NaN and 1 infinite of 4096 values".
  std::string str() const;
};

// Searches a tensor; nullopt if every element is finite, as integers and booleans always are.
std::optional<NotFinite> find_not_finite(const std::string& name, const TensorView& tensor);
// The first tensor, by name, that is not finite.
std::optional<NotFinite> find_not_finite(const TensorMap& tensors);
// The first tensor in a file or in shards that is not finite; tensors are read one by one.
std::optional<NotFinite> find_not_finite(const SavedTensors& tensors);

// Runs the program once more on the inputs that are set and checks each node's results as they are
// computed. Leaves are updated a second time by this. Infinities that come from constants, such as
// those of a causal mask, are intended and not reported. nullopt when every result is finite.
std::optional<NotFinite> find_not_finite(Executor& executor);

}  // namespace tracestep
