// Patterns of a tokenizer.json: literals, and regular expressions, which PCRE2 runs. The files are
// written for Oniguruma's syntax; parts that the two libraries read differently are refused.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace tracestep {

class TextPattern {
 public:
  struct Match {
    std::size_t begin, end;  // Positions in bytes; end > begin.
  };

  static TextPattern literal(std::string text);
  // A regular expression of a file. `where` names its place in messages. Throws Error{kInput} if it
  // is malformed, may match an empty text, or has parts that are not supported.
  static TextPattern expression(std::string_view source, const std::string& where);

  // An expression written in this program, which may use all of PCRE2's syntax.
  static TextPattern trusted(std::string_view source, const std::string& where);

  // The first match in `text` (valid UTF-8) at or after byte `from`. Throws Error{kInput} if the
  // expression needs far more steps than the text has bytes.
  std::optional<Match> find(std::string_view text, std::size_t from) const;

 private:
  TextPattern() = default;

  std::string literal_;
  std::shared_ptr<const void> code_;  // PCRE2's compiled expression; nullptr: a literal.
};

// Replaces each `from`, which must not be empty, in `text` by `by`.
std::string exchanged(std::string_view text, std::string_view from, std::string_view by);

}  // namespace tracestep
