// How the bytes of a text file stand for characters: the marks at its beginning, and UTF-16.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tracestep {

enum class TextMark : std::uint8_t { kNone, kUtf8, kUtf16Little, kUtf16Big, kUtf32 };

// What a text begins with; its first four bytes are enough.
TextMark byte_order_mark_of(std::string_view bytes);
std::size_t size_of(TextMark mark);  // in bytes

// Bytes behind a mark as UTF-8; nullopt where they are no UTF-16, or a character is NUL.
std::optional<std::string> utf8_of_utf16(std::string_view bytes, TextMark mark);

// Whether text without a mark that holds several NUL bytes looks like UTF-16: in one of the two
// places of a pair most bytes are NUL and in the other none.
bool looks_like_utf16(std::string_view bytes);

}  // namespace tracestep
