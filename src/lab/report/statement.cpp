#include "lab/report/statement.h"

#include "base/error.h"

namespace tracestep {

std::string Text::words() const {
  std::string out;
  for (const Piece& piece : pieces_) out += piece.words;
  return out;
}

void Text::append(Piece piece) {
  if (piece.words.empty()) return;
  const bool continues = !pieces_.empty() && pieces_.back().basis == piece.basis &&
                         pieces_.back().formula == piece.formula &&
                         (piece.basis == Basis::kNone || piece.basis == Basis::kRelation);
  if (continues) {
    pieces_.back().words += piece.words;
  } else {
    pieces_.push_back(std::move(piece));
  }
}

Text& Text::operator+=(const Text& more) {
  for (const Piece& piece : more.pieces_) append(piece);
  return *this;
}

void Text::rest_on(Basis basis, const std::string& formula) {
  for (Piece& piece : pieces_) {
    if (piece.basis != Basis::kNone) continue;
    piece.basis = basis;
    piece.formula = formula;
  }
}

Text join(std::span<const Text> texts, const char* separator) {
  Text out;
  for (const Text& text : texts) {
    if (!out.empty()) out += separator;
    out += text;
  }
  return out;
}

Text say(std::string_view words, std::initializer_list<Text> parts) {
  Text out;
  for (const Text& part : parts) {
    const std::size_t at = words.find("{}");
    TRACESTEP_CHECK(at != std::string_view::npos, "more parts than places: {}", words);
    out += Text(Piece{std::string(words.substr(0, at))});
    out += part;
    words.remove_prefix(at + 2);
  }
  TRACESTEP_CHECK(words.find("{}") == std::string_view::npos, "a place without a part: {}", words);
  return out += Text(Piece{std::string(words)});
}

}  // namespace tracestep
