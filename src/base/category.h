// Categories say what a buffer is for. The program states them; they are never guessed from sizes.
// The memory map's predictions and the allocator's records use the same categories.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string_view>

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

inline constexpr Category kAllCategories[] = {
    Category::kParameter, Category::kGradient,   Category::kOptimizerState, Category::kActivation,
    Category::kTemporary, Category::kWeightCast, Category::kWorkspace,      Category::kCollective,
    Category::kInput,     Category::kConstant};
inline constexpr std::size_t kCategoryCount = std::size(kAllCategories);

// The name used in tables: "parameter", "optimizer_state", "weight_cast".
constexpr std::string_view name_of(Category category) {
  switch (category) {
    case Category::kParameter: return "parameter";
    case Category::kGradient: return "gradient";
    case Category::kOptimizerState: return "optimizer_state";
    case Category::kActivation: return "activation";
    case Category::kTemporary: return "temporary";
    case Category::kWeightCast: return "weight_cast";
    case Category::kWorkspace: return "workspace";
    case Category::kCollective: return "collective";
    case Category::kInput: return "input";
    case Category::kConstant: return "constant";
  }
  return "unknown";
}

constexpr std::optional<Category> parse_category(std::string_view name) {
  for (Category category : kAllCategories) {
    if (name_of(category) == name) return category;
  }
  return std::nullopt;
}

}  // namespace tracestep
