#include "train/added_tokens.h"

#include <algorithm>

#include <utf8proc.h>

#include "base/error.h"
#include "base/utf8.h"

namespace tracestep {
namespace {

// The first character of `text`, valid UTF-8.
utf8proc_int32_t first_of(std::string_view text) {
  utf8proc_int32_t out = 0;
  utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                   static_cast<utf8proc_ssize_t>(text.size()), &out);
  return out;
}

// Where the last character of `text`, which has one, begins.
std::size_t last_begin(std::string_view text) {
  std::size_t begin = text.size() - 1;
  while (begin > 0 && (static_cast<unsigned char>(text[begin]) & 0xc0u) == 0x80u) --begin;
  return begin;
}

std::size_t first_end(std::string_view text) {
  std::size_t end = 1;
  while (end < text.size() && (static_cast<unsigned char>(text[end]) & 0xc0u) == 0x80u) ++end;
  return end;
}

// Unicode's White_Space, which does not change any more.
bool is_white_space(utf8proc_int32_t c) {
  return (c >= 0x9 && c <= 0xd) || c == 0x20 || c == 0x85 || c == 0xa0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f ||
         c == 0x3000;
}

// Unicode's \w (UTS 18, annex C): what is alphabetic, marks, digits, connectors and joiners. The
// ranges are the alphabetic symbols, of enclosed letters.
bool is_of_word(utf8proc_int32_t c) {
  switch (utf8proc_category(c)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC: return true;
    default:
      return c == 0x200c || c == 0x200d || (c >= 0x24b6 && c <= 0x24e9) ||
             (c >= 0x1f130 && c <= 0x1f149) || (c >= 0x1f150 && c <= 0x1f169) ||
             (c >= 0x1f170 && c <= 0x1f189);
  }
}

bool is_word_alone(std::string_view before, std::string_view behind) {
  return (before.empty() || !is_of_word(first_of(before.substr(last_begin(before))))) &&
         (behind.empty() || !is_of_word(first_of(behind)));
}

// Bytes of white space at the end, and at the start.
std::size_t white_space_at_end(std::string_view text) {
  std::size_t at = text.size();
  while (at > 0) {
    const std::size_t begin = last_begin(text.substr(0, at));
    if (!is_white_space(first_of(text.substr(begin)))) break;
    at = begin;
  }
  return text.size() - at;
}

std::size_t white_space_at_start(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size() && is_white_space(first_of(text.substr(at)))) {
    at += first_end(text.substr(at));
  }
  return at;
}

}  // namespace

AddedTokens::AddedTokens(std::vector<AddedToken> tokens, const std::string& where)
    : tokens_(std::move(tokens)) {
  std::ranges::sort(tokens_, {}, &AddedToken::pattern);
  const auto twice = std::ranges::adjacent_find(tokens_, {}, &AddedToken::pattern);
  if (twice != tokens_.end()) {
    fail_input("tokenizer", "{}: \"{}\" is there twice", where, escaped(twice->content));
  }
  for (const AddedToken& token : tokens_) {
    begins_[static_cast<unsigned char>(token.pattern[0])] = true;
  }
}

// Narrows the range of patterns that agree with the text, byte by byte.
const AddedToken* AddedTokens::longest_at(std::string_view text) const {
  const AddedToken* found = nullptr;
  auto begin = tokens_.begin(), end = tokens_.end();
  for (std::size_t size = 0; size < text.size() && begin != end; ++size) {
    // Those that end here stand before those that go on.
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
  for (std::size_t at = 0; at < text.size() && !tokens_.empty();) {
    const AddedToken* token =
        begins_[static_cast<unsigned char>(text[at])] ? longest_at(text.substr(at)) : nullptr;
    if (token == nullptr) {
      ++at;
      continue;
    }
    std::size_t begin = at, end = at + token->pattern.size();
    // Where a search goes on does not depend on the white space that a token takes along.
    at = end;
    if (token->single_word && !is_word_alone(text.substr(0, begin), text.substr(end))) continue;
    if (token->lstrip) {
      begin = std::max(begin - white_space_at_end(text.substr(0, begin)), done);
    }
    if (token->rstrip) end += white_space_at_start(text.substr(end));
    if (begin > done) on_text(text.substr(done, begin - done));
    on_token(token->id);
    done = end;
  }
  if (done < text.size()) on_text(text.substr(done));
}

}  // namespace tracestep
