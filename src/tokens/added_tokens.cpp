#include "tokens/added_tokens.h"

#include <algorithm>

#include "base/error.h"
#include "base/utf8.h"
#include "tokens/text_pattern.h"

namespace tracestep {
namespace {

bool begins_with_space(std::string_view text) {
  static const TextPattern space = TextPattern::trusted("\\A\\p{White_Space}", "white space");
  return space.find(text, 0).has_value();
}

// True if the first character is in Unicode's \w (UTS 18, annex C).
bool begins_with_word(std::string_view text) {
  static const TextPattern word = TextPattern::trusted(
      "\\A[\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\p{Join_Control}]", "a character of a word");
  return word.find(text, 0).has_value();
}

bool is_word_alone(std::string_view before, std::string_view behind) {
  return (before.empty() || !begins_with_word(last_character(before))) &&
         (behind.empty() || !begins_with_word(behind));
}

// The text in [begin, end); empty if an earlier token already took it (`end` < `begin`).
std::string_view between(std::string_view text, std::size_t begin, std::size_t end) {
  return text.substr(begin, end > begin ? end - begin : 0);
}

// The position at which white space at the end of `text` begins.
std::size_t end_without_space(std::string_view text) {
  while (!text.empty() && begins_with_space(last_character(text))) {
    text.remove_suffix(last_character(text).size());
  }
  return text.size();
}

// Finds the ends of runs of white space. Positions must not decrease, so that each run is read only
// once, however many tokens lie in it.
class SpaceEnds {
 public:
  explicit SpaceEnds(std::string_view text) : text_(text) {}

  std::size_t from(std::size_t at) {
    if (at >= begin_ && at < end_) return end_;
    begin_ = end_ = at;
    while (begins_with_space(text_.substr(end_))) {
      end_ += first_character(text_.substr(end_)).size();
    }
    return end_;
  }

 private:
  std::string_view text_;
  std::size_t begin_ = 0, end_ = 0;
};

}  // namespace

AddedTokens::AddedTokens(std::vector<AddedToken> tokens, const std::string& where)
    : tokens_(std::move(tokens)) {
  std::ranges::sort(tokens_, {}, &AddedToken::pattern);
  const auto twice = std::ranges::adjacent_find(tokens_, {}, &AddedToken::pattern);
  if (twice != tokens_.end()) {
    fail_input("tokenizer"_field, "{}: \"{}\" is there twice", where, escaped(twice->content));
  }
  for (const AddedToken& token : tokens_) {
    begins_[static_cast<unsigned char>(token.pattern[0])] = true;
  }
}

// Returns the longest token whose pattern begins `text` (nullptr: none), by a search byte by byte.
const AddedToken* AddedTokens::longest_at(std::string_view text) const {
  const AddedToken* found = nullptr;
  auto begin = tokens_.begin(), end = tokens_.end();
  for (std::size_t size = 0; size < text.size() && begin != end; ++size) {
    // A pattern that ends here sorts first (as −1).
    const auto byte_at = [size](const AddedToken& token) {
      return size < token.pattern.size() ? static_cast<unsigned char>(token.pattern[size]) : -1;
    };
    const int byte = static_cast<unsigned char>(text[size]);
    begin = std::lower_bound(begin, end, byte,
                             [&](const AddedToken& token, int b) { return byte_at(token) < b; });
    end = std::upper_bound(begin, end, byte,
                           [&](int b, const AddedToken& token) { return b < byte_at(token); });
    if (begin != end && begin->pattern.size() == size + 1) found = &*begin;
  }
  return found;
}

void AddedTokens::split(std::string_view text, const OnText& on_text,
                        const OnToken& on_token) const {
  std::size_t done = 0;
  SpaceEnds space_ends(text);
  for (std::size_t at = 0; at < text.size() && !tokens_.empty();) {
    const AddedToken* token =
        begins_[static_cast<unsigned char>(text[at])] ? longest_at(text.substr(at)) : nullptr;
    if (token == nullptr) {
      ++at;
      continue;
    }
    std::size_t begin = at, end = at + token->pattern.size();
    // The next search begins after the pattern, whatever white space the token takes along.
    at = end;
    if (token->single_word && !is_word_alone(text.substr(0, begin), text.substr(end))) continue;
    if (token->lstrip) begin = done + end_without_space(between(text, done, begin));
    if (token->rstrip) end = space_ends.from(end);
    // An earlier token took all of this one along; where it takes a part, `tokenizers` fails.
    if (begin > end) continue;
    if (begin > done) on_text(text.substr(done, begin - done));
    if (begin < end) on_token(token->id);
    done = end;
  }
  if (done < text.size()) on_text(text.substr(done));
}

}  // namespace tracestep
