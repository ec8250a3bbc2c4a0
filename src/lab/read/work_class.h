// Classifies the work of a kernel or op of other programs, by its name alone.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/enum_words.h"

namespace tracestep {

enum class WorkClass : std::uint8_t {
  kProducts,
  kAttention,
  kMemoryBound,  // Norms, softmax, elementwise ops, reductions, lookups.
  kOptimizer,
  kCollectives,
  kCopies,
};
TRACESTEP_WORDS(WorkClass, "matrix products", "attention", "memory-bound work", "the optimizer",
                "collectives", "copies");

// The class of a kernel's name, or of an op's in a recording without kernels. A name that no rule
// knows is memory-bound, because there are few names of products, attention and collectives, and
// many of pointwise kernels.
WorkClass work_class_of(std::string_view name);

}  // namespace tracestep
