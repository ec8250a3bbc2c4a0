// UTF-8: telling valid text from bytes, and showing bytes on a terminal without harm.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace tracestep {

// Bytes of the well-formed character at the start of `text`; 0 when there is none (overlong forms,
// surrogates and code points above U+10FFFF are not well-formed).
std::size_t utf8_character_length(std::string_view text);
bool is_utf8(std::string_view text);

// `text` for a terminal: what is not UTF-8 becomes U+FFFD, and control characters other than
// newline and tab become \xNN, so that generated text cannot send escape sequences.
std::string printable(std::string_view text);

}  // namespace tracestep
