// What a step computes again in backward instead of keeping it: the choice, as people write it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tracestep {

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

  friend bool operator==(const Recomputation&, const Recomputation&) = default;
};

// The path of a Transformer's blocks.
inline constexpr std::string_view kBlocks = "layers.*";

// "none", "blocks", "every=N", "nested", "budget=20GiB", or paths joined by "+". Error{kUsage}
// naming `where` for anything else.
Recomputation parse_recomputation(const std::string& where, const std::string& text);
// The text that is parsed as this choice.
std::string name_of(const Recomputation& choice);

}  // namespace tracestep
