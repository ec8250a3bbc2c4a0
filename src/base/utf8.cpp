#include "base/utf8.h"

#include <algorithm>

#include <fmt/format.h>
#include <utf8.h>

namespace tracestep {
namespace {

constexpr std::string_view kReplacement = "\xef\xbf\xbd", kEllipsis = " ... ";

void append_hex(unsigned char byte, std::string& out) {
  out += fmt::format("\\x{:02x}", byte);
}

// `text` is valid. U+0080 to U+009F are control characters too; they take two bytes.
void append_text(std::string_view text, std::string_view kept_controls, std::string& out) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte == 0xc2 && static_cast<unsigned char>(text[i + 1]) < 0xa0) {
      append_hex(static_cast<unsigned char>(text[++i]), out);
    } else if ((byte < 0x20 && kept_controls.find(text[i]) == kept_controls.npos) || byte == 0x7f) {
      append_hex(byte, out);
    } else {
      out += text[i];
    }
  }
}

// Calls `on_bad` for every byte that belongs to no character.
template <class OnBad>
std::string shown(std::string_view text, std::string_view kept_controls, OnBad&& on_bad) {
  std::string out;
  out.reserve(text.size());
  for (;;) {
    const std::size_t bad = std::min(utf8::find_invalid(text), text.size());
    append_text(text.substr(0, bad), kept_controls, out);
    if (bad == text.size()) return out;
    on_bad(static_cast<unsigned char>(text[bad]), out);
    text.remove_prefix(bad + 1);
  }
}

bool continues(char c) {
  return (static_cast<unsigned char>(c) & 0xc0u) == 0x80u;
}

}  // namespace

bool is_utf8(std::string_view text) {
  return utf8::is_valid(text);
}

std::string printable(std::string_view text) {
  return shown(text, "\n\t", [](unsigned char, std::string& out) { out += kReplacement; });
}

std::string escaped(std::string_view text) {
  return shown(text, "", append_hex);
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

}  // namespace tracestep
