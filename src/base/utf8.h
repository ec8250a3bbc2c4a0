// UTF-8: telling text from other bytes, and making text from outside safe to show on a terminal.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace tracestep {

bool is_utf8(std::string_view text);
// The first byte that belongs to no character; std::string_view::npos: all is text.
std::size_t find_invalid_utf8(std::string_view text);

// The first character of `text`, and the last: valid UTF-8 that is not empty.
std::string_view first_character(std::string_view text);
std::string_view last_character(std::string_view text);

// `text` with U+FFFD for what is not UTF-8: one for each byte, or for the bytes that begin a
// character together. Source: The Unicode Standard, section 3.9, U+FFFD substitution of maximal
// subparts.
std::string with_replacements(std::string_view text);

// Generated text for a terminal: what is not UTF-8 becomes U+FFFD, and control characters other
// than newline and tab become \xNN, so that no escape sequence gets through.
std::string printable(std::string_view text);

// `text` on one line, in valid UTF-8: invalid bytes and control characters become \xNN, marks that
// would show the characters beside them in another order or on other lines \uNNNN.
std::string escaped(std::string_view text);
// `text` in which only such marks are made visible.
std::string with_visible_marks(std::string_view text);

// `text` in valid UTF-8 without control characters, but for newline and tab, and without those
// marks, so that unescaped_bytes() gives it back: their bytes become \xNN, and so does a backslash
// that would look like one of these.
std::string escaped_bytes(std::string_view text);
std::string unescaped_bytes(std::string_view text);

// As escaped(), with at most `max_bytes` (at least 16): the middle of a longer text is replaced by
// an ellipsis. For messages, which quote names and values of any length.
std::string message_line(std::string_view text, std::size_t max_bytes = 4096);

// Says whether the user's locale has UTF-8.
bool locale_has_utf8();

}  // namespace tracestep
