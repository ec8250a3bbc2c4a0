// Tokens that are found in a text as they are written, before it is cut into words: names in angle
// brackets, runs of spaces, words that were added to a vocabulary.
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
  std::string pattern;       // the text to search for: the content, normalized if texts are
  bool single_word = false;  // not inside a word
  bool lstrip = false, rstrip = false;  // takes white space before or behind it along
};

// Searches for all tokens at once; of those that begin at one place, the longest is found.
class AddedTokens {
 public:
  using OnText = std::function<void(std::string_view text)>;
  using OnToken = std::function<void(std::int32_t id)>;

  AddedTokens() = default;
  // Errors: kInput for two of the same pattern; `where` names the place in the file.
  AddedTokens(std::vector<AddedToken> tokens, const std::string& where);

  // Calls for what is between the tokens of `text`, valid UTF-8, and for each token, in turn.
  void split(std::string_view text, const OnText& on_text, const OnToken& on_token) const;

 private:
  const AddedToken* longest_at(std::string_view text) const;

  std::vector<AddedToken> tokens_;  // sorted by pattern
  std::array<bool, 256> begins_{};  // true if a pattern begins with this byte
};

}  // namespace tracestep
