// Chooses what of a model is trained: adapters beside products of weights that stay as they are,
// or all but some of its parts.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tracestep {

// The form in which frozen weights of products are kept.
enum class BaseWeights : std::uint8_t {
  kStored,  // as they are, in 16 bits under autocast
  kNf4,     // in blocks of 4-bit numbers (ops/nf4.cpp), widened in front of each product
};
inline constexpr BaseWeights kAllBaseWeights[] = {BaseWeights::kStored, BaseWeights::kNf4};
constexpr std::string_view name_of(BaseWeights kind) {
  return kind == BaseWeights::kNf4 ? "nf4" : "stored";
}

// A targeted product y = x·Wᵀ becomes y + scale · (dropout(x)·Aᵀ)·Bᵀ with A [rank, in] and
// B [out, rank]; A and B are trained, and nothing else. Source: Hu et al., "LoRA", 2021.
struct Adapters {
  std::int64_t rank = 0;  // 0: there are none
  double alpha = 8.0;
  double dropout = 0.0;             // of x
  bool is_rank_stabilised = false;  // scale = alpha/√rank (Kalajdzievski, 2023), not alpha/rank
  // Names of a projection ("q", "down"), or paths of weights as path_matches() reads them.
  std::vector<std::string> targets = {"q", "v"};
  // Parts of the model that are trained whole beside the adapters, as paths.
  std::vector<std::string> whole = {};
  BaseWeights base = BaseWeights::kStored;
  std::string from = {};  // the folder, as PEFT writes it, whose adapters they start as; or none

  bool is_on() const { return rank > 0; }
  double scale() const {
    const auto r = static_cast<double>(rank);
    return alpha / (is_rank_stabilised ? std::sqrt(r) : r);
  }
  friend bool operator==(const Adapters&, const Adapters&) = default;
};

// The rank that adapters have where it is not given; alpha and targets above are PEFT's as well.
inline constexpr std::int64_t kUsualRank = 8;

// Parts of a model that keep their weights, as paths.
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

// The names of an adapter's tensors, behind the path of the product.
inline constexpr std::string_view kAdapterA = ".lora_A.weight", kAdapterB = ".lora_B.weight";
inline bool is_adapter(std::string_view parameter) {
  return parameter.ends_with(kAdapterA) || parameter.ends_with(kAdapterB);
}

}  // namespace tracestep
