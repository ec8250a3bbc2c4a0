// Detects the encoding of a text file: byte order marks, and UTF-16.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tracestep {

enum class TextMark : std::uint8_t { kNone, kUtf8, kUtf16Little, kUtf16Big, kUtf32 };

// Returns the byte order mark at the beginning of a text; its first four bytes are enough.
TextMark byte_order_mark_of(std::string_view bytes);
std::size_t size_of(TextMark mark);  // The size of a mark in bytes.

// Converts the UTF-16 bytes after a mark to UTF-8; nullopt if they are no UTF-16 or contain NUL.
std::optional<std::string> utf8_of_utf16(std::string_view bytes, TextMark mark);

// True if a text without a mark looks like UTF-16: most bytes at even offsets, or most at odd ones,
// are NUL, at least two are, and no byte at the other offsets is.
bool looks_like_utf16(std::string_view bytes);

}  // namespace tracestep
