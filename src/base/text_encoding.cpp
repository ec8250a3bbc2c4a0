#include "base/text_encoding.h"

#include <algorithm>
#include <array>

namespace tracestep {
namespace {

using namespace std::string_view_literals;

void append_utf8(std::string& out, std::uint32_t c) {
  const auto add = [&](std::uint32_t byte) { out += static_cast<char>(byte); };
  const auto rest = [&](int shift) { add(0x80 | (c >> shift & 0x3f)); };
  if (c < 0x80) return add(c);
  if (c < 0x800) {
    add(0xc0 | c >> 6);
    return rest(0);
  }
  if (c < 0x10000) {
    add(0xe0 | c >> 12);
  } else {
    add(0xf0 | c >> 18);
    rest(12);
  }
  rest(6);
  rest(0);
}

constexpr bool is_high(std::uint32_t unit) {
  return unit >= 0xd800 && unit < 0xdc00;
}
constexpr bool is_low(std::uint32_t unit) {
  return unit >= 0xdc00 && unit < 0xe000;
}

}  // namespace

TextMark byte_order_mark_of(std::string_view bytes) {
  if (bytes.starts_with("\xff\xfe\0\0"sv) || bytes.starts_with("\0\0\xfe\xff"sv)) {
    return TextMark::kUtf32;
  }
  if (bytes.starts_with("\xff\xfe")) return TextMark::kUtf16Little;
  if (bytes.starts_with("\xfe\xff")) return TextMark::kUtf16Big;
  return bytes.starts_with("\xef\xbb\xbf") ? TextMark::kUtf8 : TextMark::kNone;
}

std::size_t size_of(TextMark mark) {
  constexpr std::array<std::size_t, 5> kSizes = {0, 3, 2, 2, 4};
  return kSizes[static_cast<std::size_t>(mark)];
}

std::optional<std::string> utf8_of_utf16(std::string_view bytes, TextMark mark) {
  if (bytes.size() % 2 != 0) return std::nullopt;
  const std::size_t high_byte = mark == TextMark::kUtf16Little ? 1 : 0;
  const auto unit_at = [&](std::size_t i) -> std::uint32_t {
    const auto byte = [&](std::size_t k) { return static_cast<std::uint8_t>(bytes[i + k]); };
    return std::uint32_t{byte(high_byte)} << 8 | byte(1 - high_byte);
  };
  std::string out;
  out.reserve(bytes.size());
  for (std::size_t i = 0; i < bytes.size(); i += 2) {
    std::uint32_t c = unit_at(i);
    if (is_high(c)) {
      i += 2;
      const std::uint32_t low = i < bytes.size() ? unit_at(i) : 0;
      if (!is_low(low)) return std::nullopt;
      c = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
    } else if (c == 0 || is_low(c)) {
      return std::nullopt;
    }
    append_utf8(out, c);
  }
  return out;
}

bool looks_like_utf16(std::string_view bytes) {
  std::array<std::size_t, 2> count{};
  for (std::size_t i = 0; i < bytes.size(); ++i) count[i % 2] += bytes[i] == '\0' ? 1 : 0;
  const auto [least, most] = std::ranges::minmax(count);
  return most > 1 && least == 0 && most * 4 > bytes.size();
}

}  // namespace tracestep
