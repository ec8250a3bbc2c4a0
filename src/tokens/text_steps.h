// The steps by which a tokenizer.json prepares a text before pairs are merged: the normalizer
// rewrites it, the pre-tokenizer cuts it into words. Kinds that no family here uses are refused.
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

// NFC, Prepend, Replace, and a Sequence of them.
class TextNormalizer {
 public:
  struct Result {
    std::string text;
    std::size_t first_bytes;  // how many bytes of it, from its start, the first character became
  };

  TextNormalizer() = default;
  // Errors: kInput.
  explicit TextNormalizer(const TokenizerFields& component);

  // How many bytes all steps together may add to a text: far more than those of published
  // tokenizers do, but a small file cannot make a text of any length out of it.
  static std::size_t room_of(std::size_t text_bytes) { return 8 * text_bytes + (1u << 20); }

  bool is_empty() const { return steps_.empty(); }
  // `text`: valid UTF-8. Takes what the steps add off `room`. Errors: kInput where that does not
  // suffice.
  Result apply(std::string_view text, std::size_t& room) const;

  // The text that replaces a space, such as U+2581; empty: spaces stay.
  const std::string& space() const { return space_; }
  // True if a text gets such a space in front.
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

// Split, Digits, ByteLevel, Metaspace, and a Sequence of them.
class PreTokenizer {
 public:
  using OnWord = std::function<void(std::string_view word)>;

  PreTokenizer() = default;
  // Errors: kInput.
  explicit PreTokenizer(const TokenizerFields& component);

  // Calls `on_word` for each word of `text`, valid UTF-8, in turn. `at_start`: it comes from the
  // first character of all. Errors: kInput.
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
  struct Prefix {  // added where the word does not begin with it
    std::string content;
    bool at_start_only = false;
  };
  struct Spaces {  // another sign for each space
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
