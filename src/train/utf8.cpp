#include "train/utf8.h"

#include <fmt/format.h>

namespace tracestep {
namespace {

unsigned char byte_at(std::string_view text, std::size_t i) {
  return static_cast<unsigned char>(text[i]);
}

bool in_range(std::string_view text, std::size_t i, unsigned low, unsigned high) {
  return i < text.size() && byte_at(text, i) >= low && byte_at(text, i) <= high;
}

bool is_control(std::string_view character) {
  const unsigned char first = byte_at(character, 0);
  if (first < 0x20) return first != '\n' && first != '\t';
  if (first == 0x7f) return true;
  return first == 0xc2 && byte_at(character, 1) < 0xa0;  // U+0080..U+009F
}

}  // namespace

std::size_t utf8_character_length(std::string_view text) {
  if (text.empty()) return 0;
  const unsigned first = byte_at(text, 0);
  if (first < 0x80) return 1;
  if (first < 0xc2 || first > 0xf4) return 0;
  // The second byte's range rules out overlong forms, surrogates and what lies above U+10FFFF.
  const unsigned low = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
  const unsigned high = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
  if (!in_range(text, 1, low, high)) return 0;
  const std::size_t length = first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
  for (std::size_t i = 2; i < length; ++i) {
    if (!in_range(text, i, 0x80, 0xbf)) return 0;
  }
  return length;
}

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const std::size_t length = utf8_character_length(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

std::string printable(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const std::size_t length = utf8_character_length(text);
    const std::string_view character = text.substr(0, length == 0 ? 1 : length);
    if (length == 0) {
      out += "\xef\xbf\xbd";
    } else if (is_control(character)) {
      out += fmt::format("\\x{:02x}", byte_at(character, length - 1));
    } else {
      out += character;
    }
    text.remove_prefix(character.size());
  }
  return out;
}

}  // namespace tracestep
