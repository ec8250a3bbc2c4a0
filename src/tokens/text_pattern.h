// The patterns that a tokenizer.json searches a text for: literals, and expressions by PCRE2. Files
// are written for Oniguruma's syntax; only what both libraries read alike is taken, the rest is
// refused.
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
    std::size_t begin, end;  // in bytes; end > begin
  };

  static TextPattern literal(std::string text);
  // `where` names the place in the file for messages. Errors: kInput for an expression that is
  // malformed, may match nothing, or has parts that are not taken.
  static TextPattern expression(std::string_view source, const std::string& where);

  // An expression of this program's own, which may use all of PCRE2's syntax.
  static TextPattern trusted(std::string_view source, const std::string& where);

  // The first match in `text`, valid UTF-8, at or behind byte `from`. Errors: kInput for an
  // expression that needs far more steps than the text has bytes.
  std::optional<Match> find(std::string_view text, std::size_t from) const;

 private:
  TextPattern() = default;

  std::string literal_;
  std::shared_ptr<const void> code_;  // of PCRE2; null: a literal
};

// `text` with `by` in place of each `from`, which has some length.
std::string exchanged(std::string_view text, std::string_view from, std::string_view by);

}  // namespace tracestep
