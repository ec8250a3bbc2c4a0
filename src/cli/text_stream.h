// Shows tokens as text while they arrive, never splitting a UTF-8 character.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tokens/tokenizer.h"

namespace tracestep::cli {

// The tokens of `text`, preceded by those that the tokenizer's model expects at the start of a
// text.
std::vector<std::int64_t> prompt_tokens(const Tokenizer& tokenizer, std::string_view text);
// The tokens of `prompt` that are its text, without those at its start that the model expects.
std::span<const std::int64_t> text_of_prompt(const Tokenizer* tokenizer,
                                             std::span<const std::int64_t> prompt);

class TextStream {
 public:
  // Shows tokens by `show`, which gets text that is safe for a terminal, piece by piece. Without a
  // tokenizer, numbers of tokens are shown; a token that the tokenizer lacks becomes U+FFFD.
  TextStream(const Tokenizer* tokenizer, std::function<void(std::string_view)> show);

  void add(std::int64_t token);
  // Shows what was held back because its last character was incomplete.
  void finish();

 private:
  void add_without_text();
  void show_from(std::string_view decoded, std::size_t end);

  const Tokenizer* tokenizer_;
  std::function<void(std::string_view)> show_;
  // Tokens that are not fully shown yet; they are decoded again with each new token.
  std::vector<std::int64_t> tokens_;
  std::size_t shown_bytes_ = 0;  // How many bytes of the text of tokens_ were shown.
};

}  // namespace tracestep::cli
