// Categories say what a buffer is for. The program states them; they are never guessed from sizes.
// The memory map's predictions and the allocator's records use the same categories.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string_view>

#include "base/enum_words.h"

namespace tracestep {

enum class Category : std::uint8_t {
  kParameter,
  kGradient,
  kOptimizerState,
  kActivation,  // saved for backward
  kTemporary,
  kWeightCast,
  kWorkspace,
  kCollective,
  kInput,
  kConstant,  // stored values that no step changes: masks, tables, frozen weights
};
TRACESTEP_WORDS(Category, "parameter", "gradient", "optimizer_state", "activation", "temporary",
                "weight_cast", "workspace", "collective", "input", "constant");

inline constexpr std::size_t kCategoryCount = kAll<Category>.size();

}  // namespace tracestep
