// Chooses what a step computes again in backward instead of keeping it.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tracestep {

// The path of a Transformer's blocks.
inline constexpr std::string_view kBlocks = "layers.*";

struct Recomputation {
  enum class Kind : std::uint8_t {
    kNone,
    kParts,   // the inside of each part of the model; what it reads from outside is kept
    kNested,  // the same for each block, and of the blocks' inputs only about log2(blocks) at a
              // time
    kBudget,  // the cheapest choice whose step fits into `budget_bytes`
  };
  Kind kind = Kind::kNone;
  // kParts: model paths whose parts have one name each or "*": "layers.*.ffn".
  std::vector<std::string> paths = {};
  int every = 1;                  // kParts: so many consecutive parts are recomputed as one
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

// "none", "blocks", "every=N", "nested", "budget=20GiB", or paths joined by "+".
std::string name_of(const Recomputation& choice);

}  // namespace tracestep
