// Tells by its name alone what kind of work a kernel or an op of others does.
#pragma once

#include <cstdint>
#include <string_view>

namespace tracestep {

enum class WorkClass : std::uint8_t {
  kProducts,
  kAttention,
  kMemoryBound,  // norms, softmax, elementwise, reductions, lookups
  kOptimizer,
  kCollectives,
  kCopies,
};
inline constexpr WorkClass kAllWorkClasses[] = {WorkClass::kProducts,    WorkClass::kAttention,
                                                WorkClass::kMemoryBound, WorkClass::kOptimizer,
                                                WorkClass::kCollectives, WorkClass::kCopies};

std::string_view name_of(WorkClass work);  // "matrix products"

// Takes the name of a kernel, or of an op where a recording has no kernels. What no rule knows is
// memory-bound:
// names of products, attention and collectives are few, those of pointwise kernels are not.
WorkClass work_class_of(std::string_view name);

}  // namespace tracestep
