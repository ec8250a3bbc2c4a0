#include "base/utf8.h"

#include <langinfo.h>
#include <locale.h>

#include <algorithm>
#include <charconv>

#include <fmt/format.h>
#include <utf8.h>

namespace tracestep {
namespace {

constexpr std::string_view kReplacement = "\xef\xbf\xbd", kEllipsis = " ... ";

constexpr char32_t kNone = 0xffffffff;  // a byte that belongs to no character

void append_hex(unsigned char byte, std::string& out) {
  out += fmt::format("\\x{:02x}", byte);
}

bool is_control(char32_t c) {
  return c < 0x20 || (c >= 0x7f && c < 0xa0);
}

bool is_line_or_tab(char32_t c) {
  return c == '\n' || c == '\t';
}

// True for marks, overrides and isolates of bidirectional text, separators of lines and paragraphs,
// and the deprecated controls of shaping.
bool moves_others(char32_t c) {
  return c == 0x61c || c == 0x200e || c == 0x200f || (c >= 0x2028 && c <= 0x202e) ||
         (c >= 0x2066 && c <= 0x206f);
}

// Calls `on_character(c, bytes)` for each character, with kNone for each byte that is in none.
template <class OnCharacter>
void walk(std::string_view text, OnCharacter&& on_character) {
  while (!text.empty()) {
    const std::size_t valid = std::min(utf8::find_invalid(text), text.size());
    const char* at = text.data();
    while (at < text.data() + valid) {
      const char* const begin = at;
      const auto c = static_cast<char32_t>(utf8::unchecked::next(at));
      on_character(c, std::string_view(begin, static_cast<std::size_t>(at - begin)));
    }
    if (valid == text.size()) return;
    on_character(kNone, text.substr(valid, 1));
    text.remove_prefix(valid + 1);
  }
}

bool continues(char c) {
  return (static_cast<unsigned char>(c) & 0xc0u) == 0x80u;
}

// Returns how many bytes at the start of `text` begin an incomplete character; at least 1.
std::size_t ill_formed_bytes(std::string_view text) {
  const auto lead = static_cast<unsigned char>(text[0]);
  const std::size_t length = lead >= 0xf0u ? 4 : lead >= 0xe0u ? 3 : 2;
  if (lead < 0xc2u || lead > 0xf4u || text.size() < 2) return 1;
  // The second byte tells long forms, surrogates and what is beyond U+10FFFF.
  const auto second = static_cast<unsigned char>(text[1]);
  const unsigned least = lead == 0xe0u ? 0xa0u : lead == 0xf0u ? 0x90u : 0x80u;
  const unsigned most = lead == 0xedu ? 0x9fu : lead == 0xf4u ? 0x8fu : 0xbfu;
  if (second < least || second > most) return 1;
  return length == 4 && text.size() > 2 && continues(text[2]) ? 3 : 2;
}

}  // namespace

bool is_utf8(std::string_view text) {
  return utf8::is_valid(text);
}

std::size_t find_invalid_utf8(std::string_view text) {
  return utf8::find_invalid(text);
}

std::string_view first_character(std::string_view text) {
  std::size_t end = 1;
  while (end < text.size() && continues(text[end])) ++end;
  return text.substr(0, end);
}

std::string_view last_character(std::string_view text) {
  std::size_t begin = text.size() - 1;
  while (begin > 0 && continues(text[begin])) --begin;
  return text.substr(begin);
}

std::string with_replacements(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const std::size_t valid = std::min(utf8::find_invalid(text), text.size());
    out += text.substr(0, valid);
    text.remove_prefix(valid);
    if (text.empty()) break;
    out += kReplacement;
    text.remove_prefix(ill_formed_bytes(text));
  }
  return out;
}

std::string printable(std::string_view text) {
  std::string out;
  walk(text, [&](char32_t c, std::string_view bytes) {
    if (c == kNone) {
      out += kReplacement;
    } else if (is_control(c) && !is_line_or_tab(c)) {
      append_hex(static_cast<unsigned char>(c), out);
    } else {
      out += bytes;
    }
  });
  return out;
}

std::string escaped(std::string_view text) {
  std::string out;
  walk(text, [&](char32_t c, std::string_view bytes) {
    if (c == kNone || is_control(c)) {
      append_hex(static_cast<unsigned char>(bytes.back()), out);
    } else {
      out += moves_others(c) ? fmt::format("\\u{:04x}", static_cast<std::uint32_t>(c)) : bytes;
    }
  });
  return out;
}

std::string with_visible_marks(std::string_view text) {
  std::string out;
  walk(text, [&](char32_t c, std::string_view bytes) {
    out += moves_others(c) ? fmt::format("\\u{:04x}", static_cast<std::uint32_t>(c)) : bytes;
  });
  return out;
}

std::string escaped_bytes(std::string_view text) {
  std::string out;
  walk(text, [&](char32_t c, std::string_view bytes) {
    const bool is_shown = c != kNone && !moves_others(c) && (!is_control(c) || is_line_or_tab(c));
    const bool looks_escaped =
        c == '\\' &&
        text.substr(static_cast<std::size_t>(bytes.data() - text.data())).starts_with("\\x");
    if (is_shown && !looks_escaped) {
      out += bytes;
    } else {
      for (char byte : bytes) append_hex(static_cast<unsigned char>(byte), out);
    }
  });
  return out;
}

std::string unescaped_bytes(std::string_view text) {
  constexpr std::size_t kLength = 4;  // "\xNN"
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const std::string_view here = text.substr(at, kLength);
    unsigned byte = 0;
    if (here.size() == kLength && here.starts_with("\\x") &&
        std::from_chars(here.data() + 2, here.data() + kLength, byte, 16).ptr ==
            here.data() + kLength) {
      out += static_cast<char>(byte);
      at += kLength;
    } else {
      out += text[at++];
    }
  }
  return out;
}

std::string message_line(std::string_view text, std::size_t max_bytes) {
  // Escaping makes text longer, never shorter: of a huge one only the two ends are read.
  std::string head, tail;
  if (text.size() > 2 * max_bytes) {
    head = escaped(text.substr(0, max_bytes));
    tail = escaped(text.substr(text.size() - max_bytes));
  } else {
    head = escaped(text);
    if (head.size() <= max_bytes) return head;
    tail = head;
  }
  const std::size_t side = (max_bytes - kEllipsis.size()) / 2;
  std::size_t end = side, start = tail.size() - side;
  while (end > 0 && continues(head[end])) --end;
  while (start < tail.size() && continues(tail[start])) ++start;
  return head.substr(0, end).append(kEllipsis).append(tail, start);
}

bool locale_has_utf8() {
  const locale_t locale = ::newlocale(LC_CTYPE_MASK, "", nullptr);
  if (locale == nullptr) return false;
  const bool out = std::string_view(::nl_langinfo_l(CODESET, locale)) == "UTF-8";
  ::freelocale(locale);
  return out;
}

}  // namespace tracestep
