// Shows tokens as text while they arrive, never splitting a UTF-8 character.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tokens/tokenizer.h"

namespace tracestep::cli {

// The tokens of a text that begins: what its model expects before it, and those of `text`.
std::vector<std::int64_t> prompt_tokens(const Tokenizer& tokenizer, std::string_view text);
// `prompt` without what stands before its text.
std::span<const std::int64_t> text_of_prompt(const Tokenizer* tokenizer,
                                             std::span<const std::int64_t> prompt);

class TextStream {
 public:
  // `show` gets text that is safe for a terminal, piece by piece. Without a tokenizer the token
  // numbers are shown; a token that it does not have is U+FFFD.
  TextStream(const Tokenizer* tokenizer, std::function<void(std::string_view)> show);

  void add(std::int64_t token);
  // Shows what was held back: the start of an incomplete character.
  void finish();

 private:
  void add_without_text();
  void show_from(std::string_view decoded, std::size_t end);

  const Tokenizer* tokenizer_;
  std::function<void(std::string_view)> show_;
  std::vector<std::int64_t> tokens_;  // not shown in full yet: decoded again with each new token
  std::size_t shown_bytes_ = 0;       // of the text of tokens_
};

}  // namespace tracestep::cli
