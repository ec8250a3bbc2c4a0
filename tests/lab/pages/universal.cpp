#include "lab/pages/universal.h"

#include <algorithm>
#include <regex>

namespace tracestep::testing {

std::string own_words(const Text& text) {
  std::string out;
  for (const Piece& piece : text.pieces()) {
    out += piece.basis == Basis::kQuote ? "…" : piece.words;
  }
  return out;
}

std::string universal_in(std::string words) {
  static const std::regex of_one_row(
      "All kernels together|None of (the|[0-9]+) published times|of all layers|at all|all but|in "
      "all\\b|each parameter|for each of|"
      "for each layer|each with an owner|of each head");
  static const std::regex universal(
      "\\b(all|All|every|Every|none|None|always|never|does not matter|both|largest of|any)\\b");
  words = std::regex_replace(words, of_one_row, "");
  std::smatch found;
  return std::regex_search(words, found, universal) ? std::string(found[1]) : std::string();
}

bool compares_itself(const Text& text) {
  static const std::regex same(R"(\(([^() ]+(\([^()]*\))?) [/-] \1\)|paired\(([^,()]+), \3\))");
  return std::ranges::any_of(
      text.pieces(), [](const Piece& piece) { return std::regex_search(piece.formula, same); });
}

}  // namespace tracestep::testing
