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
  std::string what;  // "lm_head.weight", "the result of softmax at layers.0.attn (forward)"
  DType dtype = DType::kF32;
  std::int64_t infinite = 0, nan = 0, count = 0;  // elements; `count` in all
  std::optional<Phase> phase = {};                // of a result

  // "lm_head.weight holds 2 NaN and 1 infinite of 4096 values".
  std::string str() const;
};

// nullopt when every element is finite; integers and booleans always are.
std::optional<NotFinite> find_not_finite(const std::string& name, const TensorView& tensor);
// The first one by name.
std::optional<NotFinite> find_not_finite(const TensorMap& tensors);
// The first one in a file or in shards, read tensor by tensor.
std::optional<NotFinite> find_not_finite(const SavedTensors& tensors);

// Runs the program once more on the inputs that are set and checks each node's results as they are
// computed. Leaves are updated a second time by this. Infinities that come from constants, such as
// those of a causal mask, are intended and not reported. nullopt when every result is finite.
std::optional<NotFinite> find_not_finite(Executor& executor);

}  // namespace tracestep
