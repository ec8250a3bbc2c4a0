// Chooses what a step recomputes in backward instead of keeping it.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tracestep {

// The path of all blocks of a Transformer.
inline constexpr std::string_view kBlocks = "layers.*";

struct Recomputation {
  enum class Kind : std::uint8_t {
    kNone,
    kParts,  // The inside of each part of the model; what a part reads from outside is kept.
    // The inside of each block, with only about log2(blocks) of the blocks' inputs kept at a time.
    kNested,
    // The cheapest choice whose step fits into `budget_bytes`.
    kBudget,
  };
  Kind kind = Kind::kNone;
  // With kParts: model paths in which "*" stands for one name: "layers.*.ffn".
  std::vector<std::string> paths = {};
  int every = 1;                  // With kParts: how many consecutive parts are recomputed as one.
  std::int64_t budget_bytes = 0;  // kBudget

  static Recomputation parts(std::vector<std::string> paths) {
    return {.kind = Kind::kParts, .paths = std::move(paths)};
  }
  static Recomputation blocks(int every = 1) {
    return {.kind = Kind::kParts, .paths = {std::string(kBlocks)}, .every = every};
  }
  static Recomputation nested() { return {.kind = Kind::kNested, .paths = {std::string(kBlocks)}}; }

  friend auto operator<=>(const Recomputation&, const Recomputation&) = default;
};

// Returns the choice as text: "none", "blocks", "every=N", "nested", "budget=20GiB", or paths
// joined by "+".
std::string name_of(const Recomputation& choice);

}  // namespace tracestep
