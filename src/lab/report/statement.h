// The text of an answer in pieces: figures, comparisons and quotations know what they rest on; the
// words between them may contain neither numbers nor comparatives. tests/lab/study/claims.h checks
// the printed text against the tables by these pieces.
#pragma once

#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tracestep {

enum class Basis {
  kNone,      // words
  kFigure,    // A number with its unit; the formula evaluates to it.
  kRelation,  // Words that compare; the formula is a relation that holds.
  kQuote,     // The text of a cell, which the formula names.
};

struct Piece {
  std::string words;
  Basis basis = Basis::kNone;
  std::string formula = {};  // A formula in the language of lab/report/quantity.h.
};

class Text {
 public:
  Text() = default;
  // Makes a text of plain words. Numbers, comparisons and cells must be pieces with a formula.
  Text(const char* words) : Text(Piece{words}) {}
  explicit Text(Piece piece) { append(std::move(piece)); }

  bool empty() const { return pieces_.empty(); }
  std::string words() const;
  const std::vector<Piece>& pieces() const { return pieces_; }
  Text& operator+=(const Text& more);
  // Gives all pieces that have no basis yet this basis and formula.
  void rest_on(Basis basis, const std::string& formula);

 private:
  void append(Piece piece);
  std::vector<Piece> pieces_;
};

inline Text operator+(Text a, const Text& b) {
  return a += b;
}
Text join(std::span<const Text> texts, const char* separator);

// Puts the next of `parts` in place of each "{}" of `words`. CHECKs that there are as many.
Text say(std::string_view words, std::initializer_list<Text> parts);

}  // namespace tracestep
