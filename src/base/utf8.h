// UTF-8: telling text from bytes, and showing what came from outside on a terminal without harm.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace tracestep {

bool is_utf8(std::string_view text);

// Generated text for a terminal: what is not UTF-8 becomes U+FFFD, and control characters other
// than newline and tab become \xNN, so that no escape sequence gets through.
std::string printable(std::string_view text);

// `text` on one line, in valid UTF-8: what is not, and every control character, becomes \xNN.
std::string escaped(std::string_view text);

// The same, at most `max_bytes` of it (at least 16): of a longer text the middle gives way to an
// ellipsis. For messages, which quote names and values of any length.
std::string message_line(std::string_view text, std::size_t max_bytes = 4096);

}  // namespace tracestep
