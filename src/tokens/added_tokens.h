// Tokens that are found in a text literally, before it is cut into words: names in angle brackets,
// runs of spaces, words that were added to a vocabulary.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace tracestep {

struct AddedToken {
  std::int32_t id = 0;
  std::string content;
  std::string pattern;       // The text to search for; it is normalized if texts are.
  bool single_word = false;  // True: it is not found inside a word.
  // True: white space before the token (lstrip) or after it (rstrip) belongs to it.
  bool lstrip = false, rstrip = false;
};

// Searches a text for all tokens at once; where several match, it takes the longest.
class AddedTokens {
 public:
  using OnText = std::function<void(std::string_view text)>;
  using OnToken = std::function<void(std::int32_t id)>;

  AddedTokens() = default;
  // Throws Error{kInput} for two tokens of one pattern; `where` names the place in the file.
  AddedTokens(std::vector<AddedToken> tokens, const std::string& where);

  // Calls `on_text` for each stretch between tokens of `text` (valid UTF-8) and `on_token` for each
  // token, in order.
  void split(std::string_view text, const OnText& on_text, const OnToken& on_token) const;

 private:
  const AddedToken* longest_at(std::string_view text) const;

  std::vector<AddedToken> tokens_;  // sorted by pattern
  std::array<bool, 256> begins_{};  // true if a pattern begins with this byte
};

}  // namespace tracestep
