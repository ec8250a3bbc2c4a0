// UTF-8: telling text from other bytes, and making text from outside safe to show on a terminal.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace tracestep {

bool is_utf8(std::string_view text);
// Returns the position of the first byte that belongs to no character; std::string_view::npos: the
// text is valid.
std::size_t find_invalid_utf8(std::string_view text);

// Return the first and the last character of `text`, which is valid UTF-8 and not empty.
std::string_view first_character(std::string_view text);
std::string_view last_character(std::string_view text);

// Returns `text` with U+FFFD for what is not UTF-8: one for each byte, or for the bytes that begin
// a character together. Source: The Unicode Standard, section 3.9, U+FFFD substitution of maximal
// subparts.
std::string with_replacements(std::string_view text);

// Makes generated text safe for a terminal: bytes that are not UTF-8 become U+FFFD, and control
// characters other than newline and tab become \xNN, so that no escape sequence gets through.
std::string printable(std::string_view text);

// Returns `text` on one line, in valid UTF-8. Invalid bytes and control characters become \xNN;
// direction marks, which would reorder characters around them, and line separators become \uNNNN.
std::string escaped(std::string_view text);
// Returns `text` with only direction marks and line separators replaced by \uNNNN.
std::string with_visible_marks(std::string_view text);

// Returns `text` in valid UTF-8 without direction marks, line separators and control characters
// other than newline and tab: their bytes become \xNN, as does a backslash that would look like
// such a code. unescaped_bytes() restores the text.
std::string escaped_bytes(std::string_view text);
std::string unescaped_bytes(std::string_view text);

// Returns escaped(text) in at most `max_bytes` (at least 16): an ellipsis replaces the middle of a
// longer text. It is for messages, which quote names and values of any length.
std::string message_line(std::string_view text, std::size_t max_bytes = 4096);

// True if the user's locale uses UTF-8.
bool locale_has_utf8();

}  // namespace tracestep
