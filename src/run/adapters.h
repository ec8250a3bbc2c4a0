// Chooses what of a model is trained: adapters added to products of frozen weights, or the whole
// model except some frozen parts.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/enum_words.h"

namespace tracestep {

// How the frozen weights of products are stored.
enum class BaseWeights : std::uint8_t {
  kStored,  // Unchanged; in 16 bits under autocast.
  kNf4,     // In blocks of 4-bit numbers (ops/nf4.cpp), which are widened before each product.
};
TRACESTEP_WORDS(BaseWeights, "stored", "nf4");
// LoRA (Hu et al. 2021): a targeted product y = x·Wᵀ becomes y + scale · (dropout(x)·Aᵀ)·Bᵀ with A
// [rank, in] and B [out, rank]; only A and B are trained, and the parts that `whole` names.
struct Adapters {
  std::int64_t rank = 0;  // The rank of A and B; 0: there are no adapters.
  double alpha = 8.0;
  double dropout = 0.0;  // The probability with which elements of x are dropped.
  // True: scale = alpha/√rank (Kalajdzievski, 2023) instead of alpha/rank.
  bool is_rank_stabilised = false;
  // Names of a projection ("q", "down"), or paths of weights as path_matches() reads them.
  std::vector<std::string> targets = {"q", "v"};
  // Paths of parts of the model that are trained whole besides the adapters.
  std::vector<std::string> whole = {};
  BaseWeights base = BaseWeights::kStored;
  // The folder in PEFT's format whose adapters are loaded at the start; empty: none.
  std::string from = {};

  bool is_on() const { return rank > 0; }
  double scale() const {
    const auto r = static_cast<double>(rank);
    return alpha / (is_rank_stabilised ? std::sqrt(r) : r);
  }
  friend bool operator==(const Adapters&, const Adapters&) = default;
};

// The rank of adapters if none is given. It is PEFT's default, as those of alpha and targets are.
inline constexpr std::int64_t kUsualRank = 8;

// Paths of parts of a model whose weights are not trained.
struct FrozenParts {
  std::vector<std::string> paths = {};
  bool any() const { return !paths.empty(); }
  friend bool operator==(const FrozenParts&, const FrozenParts&) = default;
};
std::string name_of(const FrozenParts& parts);  // "none", or paths joined by "+"

// True if the pattern is the path, or a part of the model that the path lies in: "layers.0-15",
// "*.q_proj", "layers.*.ffn.w1". `*` stands for any characters, dots included, and a name A-B of
// two numbers for all from A to B.
bool path_matches(std::string_view pattern, std::string_view path);

// The suffixes of an adapter's tensors, which follow the path of the product.
inline constexpr std::string_view kAdapterA = ".lora_A.weight", kAdapterB = ".lora_B.weight";
inline bool is_adapter(std::string_view parameter) {
  return parameter.ends_with(kAdapterA) || parameter.ends_with(kAdapterB);
}

}  // namespace tracestep
