#include "lab/read/json_stream.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "base/json.h"

namespace tracestep {
namespace {

constexpr std::size_t kNone = std::string_view::npos;
constexpr std::size_t kPart = std::size_t{1} << 17;

bool is_space(char c) {
  return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

// True for the bytes at which a string, a list or an object may begin or end.
constexpr auto kIsBracketOrQuote = [] {
  std::array<bool, 256> out{};
  for (const char c : {'"', '{', '}', '[', ']'}) out[static_cast<unsigned char>(c)] = true;
  return out;
}();

// Says whether one of eight bytes is `c`.
bool has_byte(std::uint64_t eight, char c) {
  constexpr std::uint64_t kOnes = 0x0101010101010101;
  const std::uint64_t x = eight ^ (kOnes * static_cast<unsigned char>(c));
  return ((x - kOnes) & ~x & (kOnes << 7)) != 0;
}

// Returns the position after the quoted text whose first quote is at `at`; npos: it does not end.
std::size_t end_of_quoted(std::string_view text, std::size_t at) {
  std::size_t i = at + 1;
  for (;;) {
    for (std::uint64_t eight = 0; i + sizeof eight <= text.size(); i += sizeof eight) {
      std::memcpy(&eight, text.data() + i, sizeof eight);
      if (has_byte(eight, '"') || has_byte(eight, '\\')) break;
    }
    while (i < text.size() && text[i] != '"' && text[i] != '\\') ++i;
    if (i >= text.size()) return kNone;
    if (text[i] == '"') return i + 1;
    i += 2;  // what is escaped ends nothing
  }
}

// The bytes in memory: a window that moves along the file, and grows only for a longer value.
class Window {
 public:
  explicit Window(ByteStream& bytes) : bytes_(bytes) {}

  // Finds the next byte that is neither space, comma nor part of UTF-8's mark at the beginning;
  // '\0' at the end.
  char peek() {
    do {
      for (; at_ < end_; ++at_) {
        const char c = buffer_[at_];
        if (!is_space(c) && c != ',' && c != '\xef' && c != '\xbb' && c != '\xbf') return c;
      }
    } while (more());
    return '\0';
  }
  void pass() { ++at_; }

  // Reads the value that begins here; nullopt: the text ends within it. Valid until the next call.
  std::optional<std::string_view> value() {
    do {
      const std::size_t end = end_of_json_value({buffer_.data(), end_}, at_);
      // A value at the very end may go on: a number has no mark of its end.
      if (end != kNone && (end < end_ || buffer_[at_] == '"' || buffer_[at_] == '{')) {
        const std::string_view out(buffer_.data() + at_, end - at_);
        at_ = end;
        return out;
      }
      if (end_ - at_ > kMaxJsonItemBytes) {
        fail_input(bytes_.name(), "a value at byte {} is longer than {} MiB", offset_ + at_,
                   kMaxJsonItemBytes >> 20);
      }
    } while (more());
    return std::nullopt;
  }

  void expect(bool is_right) const {
    if (!is_right) fail_input(bytes_.name(), "not valid JSON at byte {}", offset_ + at_ + 1);
  }

 private:
  bool more() {
    std::memmove(buffer_.data(), buffer_.data() + at_, end_ - at_);
    offset_ += at_;
    end_ -= at_;
    at_ = 0;
    if (buffer_.size() < end_ + kPart) buffer_.resize(2 * end_ + kPart);
    const std::size_t count = bytes_.read(std::span(buffer_).subspan(end_, kPart));
    end_ += count;
    return count > 0;
  }

  ByteStream& bytes_;
  std::vector<char> buffer_ = std::vector<char>(kPart);
  std::size_t at_ = 0, end_ = 0;
  std::uint64_t offset_ = 0;
};

}  // namespace

std::size_t skip_json_space(std::string_view text, std::size_t at) {
  while (at < text.size() && is_space(text[at])) ++at;
  return at;
}

std::size_t end_of_json_value(std::string_view text, std::size_t at) {
  if (at >= text.size()) return kNone;
  if (text[at] == '"') return end_of_quoted(text, at);
  if (text[at] != '{' && text[at] != '[')
    return std::min(text.find_first_of(",}] \n\t\r", at), text.size());
  int depth = 0;
  for (std::size_t i = at; i < text.size(); ++i) {
    const char c = text[i];
    if (!kIsBracketOrQuote[static_cast<unsigned char>(c)]) continue;
    if (c == '"') {
      const std::size_t end = end_of_quoted(text, i);
      if (end == kNone) return kNone;
      i = end - 1;
    } else if (c == '{' || c == '[') {
      ++depth;
    } else if (--depth == 0) {
      return i + 1;
    }
  }
  return kNone;
}

bool read_json(ByteStream& bytes, std::string_view list, const JsonVisitor& visitor) {
  Window window(bytes);
  const char open = window.peek();
  if (open != '{' && open != '[') fail_input(bytes.name(), "it is no JSON object and no list");
  window.pass();
  bool is_in_list = open == '[';
  for (char c = window.peek(); c != '\0'; c = window.peek()) {
    if (c == '}' && !is_in_list) return !bytes.is_cut();
    if (c == ']' && is_in_list) {
      window.pass();
      if (open == '[') return !bytes.is_cut();
      is_in_list = false;
      continue;
    }
    window.expect(is_in_list ? c != '}' && c != ':' : c == '"');
    const auto first = window.value();
    if (!first) break;
    if (is_in_list) {
      visitor.item(*first);
      continue;
    }
    const std::string key(unquoted(*first));
    c = window.peek();
    if (c == '\0') break;
    window.expect(c == ':');
    window.pass();
    is_in_list = window.peek() == '[' && key == list;
    if (is_in_list) {
      window.pass();
      continue;
    }
    const auto value = window.value();
    if (!value) break;
    window.expect(!value->empty());
    visitor.member(key, *value);
  }
  return false;
}

std::string_view unquoted(std::string_view value) {
  const bool is_quoted = value.size() > 1 && value.front() == '"';
  return is_quoted ? value.substr(1, value.size() - 2) : value;
}

std::optional<std::int64_t> json_integer(std::string_view value) {
  value = unquoted(value);
  std::int64_t out = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), out);
  const bool is_whole = error == std::errc() && end == value.data() + value.size();
  return is_whole ? std::optional(out) : std::nullopt;
}

std::optional<std::int64_t> json_thousandths(std::string_view value) {
  value = unquoted(value);
  if (value.find_first_of("0123456789") == kNone) return std::nullopt;
  const std::size_t point = std::min(value.find('.'), value.size());
  std::string_view decimals = value.substr(std::min(point + 1, value.size()));
  if (decimals.find_first_not_of("0123456789") == kNone && point <= 20) {
    std::array<char, 24> digits{};
    std::ranges::fill(std::ranges::copy(value.substr(0, point), digits.begin()).out, digits.end(),
                      '0');
    std::ranges::copy(decimals.substr(0, 3), digits.begin() + static_cast<std::ptrdiff_t>(point));
    if (const auto out = json_integer({digits.data(), point + 3})) return out;
  }
  // An exponent: some writers print large stamps so.
  double real = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), real);
  const bool is_real = error == std::errc() && end == value.data() + value.size();
  if (!is_real || !(std::abs(real) < 1e15)) return std::nullopt;
  return static_cast<std::int64_t>(real * 1000);
}

std::string unescaped(std::string_view value) {
  if (value.find('\\') == kNone) return std::string(unquoted(value));
  try {
    const Json text = Json::parse(value, "text");
    return text.is_string() ? text.as_string() : std::string(value);
  } catch (const Error&) {
    return std::string(unquoted(value));  // escapes that JSON does not have
  }
}

}  // namespace tracestep
