// How the bytes of a text file stand for characters: the marks at its beginning, and UTF-16.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tracestep {

enum class TextMark : std::uint8_t { kNone, kUtf8, kUtf16Little, kUtf16Big, kUtf32 };

// The byte order mark at the beginning of a text; its first four bytes are enough.
TextMark byte_order_mark_of(std::string_view bytes);
std::size_t size_of(TextMark mark);  // in bytes

// Bytes behind a mark as UTF-8; nullopt where they are no UTF-16, or a character is NUL.
std::optional<std::string> utf8_of_utf16(std::string_view bytes, TextMark mark);

// True if text without a mark looks like UTF-16: of the bytes at even places, or of those at odd
// places, most and at least two are NUL, and of the others none.
bool looks_like_utf16(std::string_view bytes);

}  // namespace tracestep
