// The steps by which a tokenizer.json prepares a text before pairs are merged: the normalizer
// rewrites it, and the pre-tokenizer cuts it into words. Kinds of steps that no supported family
// uses are refused.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "tokens/text_pattern.h"
#include "tokens/tokenizer_fields.h"

namespace tracestep {

// Applies the normalizer of a tokenizer.json: NFC, Prepend, Replace, or a Sequence of them.
class TextNormalizer {
 public:
  struct Result {
    std::string text;
    // The number of bytes, from the start of the text, that come from the first character.
    std::size_t first_bytes;
  };

  TextNormalizer() = default;
  // Reads a normalizer. Throws Error{kInput} for an unknown kind.
  explicit TextNormalizer(const TokenizerFields& component);

  // The most bytes that all steps together may add to a text. It is far more than published
  // tokenizers need, but a small file cannot produce a text of any length.
  static std::size_t room_of(std::size_t text_bytes) { return 8 * text_bytes + (1u << 20); }

  bool is_empty() const { return steps_.empty(); }
  // Normalizes `text`, which must be valid UTF-8. The bytes that steps add are subtracted from
  // `room`. Throws Error{kInput} if there is not enough.
  Result apply(std::string_view text, std::size_t& room) const;

  // The text that replaces a space, such as U+2581; empty: spaces are kept.
  const std::string& space() const { return space_; }
  // True if a text gets a space, or space() in its place, at its beginning.
  bool prepends_space() const { return prepends_space_; }

 private:
  struct Nfc {};
  struct Prepend {
    std::string content;
  };
  struct Replace {
    TextPattern pattern;
    std::string content;
  };

  struct Step {
    std::variant<Nfc, Prepend, Replace> change;
    std::string where;
  };

  void add(const TokenizerFields& step);

  std::vector<Step> steps_;
  std::string space_;
  bool prepends_space_ = false;
};

// Applies the pre-tokenizer of a tokenizer.json: Split, Digits, ByteLevel, Metaspace, a Sequence.
class PreTokenizer {
 public:
  using OnWord = std::function<void(std::string_view word)>;

  PreTokenizer() = default;
  // Reads a pre-tokenizer. Throws Error{kInput} for an unknown kind.
  explicit PreTokenizer(const TokenizerFields& component);

  // Calls `on_word` for each word of `text` (valid UTF-8), in order. `at_start`: the text begins
  // with the first character of the whole text. Throws Error{kInput}.
  void cut(std::string_view text, bool at_start, const OnWord& on_word) const {
    cut(0, text, at_start, on_word);
  }

  // True if tokens stand for bytes, each of which is a character of the GPT-2 alphabet.
  bool is_byte_level() const { return is_byte_level_; }
  const std::string& space() const { return space_; }
  bool prepends_space() const { return prepends_space_; }

 private:
  enum class Behavior { kIsolated, kRemoved, kMergedWithPrevious, kMergedWithNext, kContiguous };
  struct Split {
    TextPattern pattern;
    Behavior behavior;
    bool invert = false;
  };
  struct Prefix {  // A text that is added before a word unless the word begins with it.
    std::string content;
    bool at_start_only = false;
  };
  struct Spaces {  // Another character in place of each space.
    std::string content;
  };

  void add(const TokenizerFields& step);
  void add_split(const TokenizerFields& step);
  void add_byte_level(const TokenizerFields& step);
  void add_metaspace(const TokenizerFields& step);
  void cut(std::size_t step, std::string_view text, bool at_start, const OnWord& on_word) const;

  std::vector<std::variant<Split, Prefix, Spaces>> steps_;
  bool is_byte_level_ = false, prepends_space_ = false;
  std::string space_;
};

}  // namespace tracestep
