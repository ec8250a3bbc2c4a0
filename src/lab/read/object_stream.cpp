#include "lab/read/object_stream.h"

#include <array>
#include <charconv>
#include <cstring>

#include "base/error.h"
#include "base/utf8.h"

namespace tracestep {
namespace {

constexpr std::size_t kNone = std::string_view::npos;
constexpr std::size_t kPart = std::size_t{1} << 20;

bool is_space(char c) {
  return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}
bool ends_scalar(char c) {
  return c == ',' || c == '}' || c == ']' || is_space(c);
}

// Bytes at which something may begin or end within a list or an object.
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

// The place behind a text in quotes whose first quote is at `at`; npos: it does not end.
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

std::size_t end_of_nested(std::string_view text, std::size_t at) {
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

// A window on the bytes that moves on and grows only for a value that is longer than it.
class Window {
 public:
  explicit Window(ByteStream& bytes) : bytes_(bytes) {}

  // The byte at the window's begin behind white space; nullopt: the end.
  std::optional<char> peek() {
    for (;;) {
      at_ = skip_json_space(text(), at_);
      if (at_ < end_) return buffer_[at_];
      if (!more()) return std::nullopt;
    }
  }
  void pass() { ++at_; }

  // The value at the begin; nullopt: the text ends within it. Valid until the next call.
  std::optional<std::string_view> value() {
    for (;;) {
      const std::size_t end = end_of_json_value(text(), at_);
      // What stands at the very end may go on: a number has no mark of its end.
      if (end != kNone && (end < end_ || buffer_[at_] == '"' || buffer_[at_] == '{')) {
        const std::string_view out = text().substr(at_, end - at_);
        at_ = end;
        return out;
      }
      if (end_ - at_ > kMaxJsonItemBytes) {
        fail_input(name(), "a value at byte {} is longer than {} MiB", offset_ + at_,
                   kMaxJsonItemBytes >> 20);
      }
      if (!more()) return std::nullopt;
    }
  }

  std::string name() const { return bytes_.path().filename().string(); }
  std::uint64_t offset() const { return offset_ + at_; }

 private:
  std::string_view text() const { return {buffer_.data(), end_}; }

  bool more() {
    if (at_ > 0) {
      std::memmove(buffer_.data(), buffer_.data() + at_, end_ - at_);
      offset_ += at_;
      end_ -= at_;
      at_ = 0;
    }
    if (buffer_.size() < end_ + kPart) buffer_.resize(2 * end_ + kPart);
    const std::size_t count = bytes_.read(std::span(buffer_).subspan(end_, kPart));
    end_ += count;
    return count > 0;
  }

  ByteStream& bytes_;
  std::vector<char> buffer_;
  std::size_t at_ = 0, end_ = 0;
  std::uint64_t offset_ = 0;
};

[[noreturn]] void fail_json(const Window& window) {
  fail_input(window.name(), "not valid JSON at byte {}", window.offset() + 1);
}

// Returns false where the text ends within the list.
bool read_items(Window& window, const ObjectVisitor& visitor, std::int64_t& items) {
  window.pass();
  for (;;) {
    const std::optional<char> next = window.peek();
    if (!next) return false;
    if (*next == ']') return window.pass(), true;
    if (*next == ',') {
      window.pass();
      continue;
    }
    if (*next == '}' || *next == ':') fail_json(window);
    const auto item = window.value();
    if (!item) return false;
    ++items;
    visitor.item(*item);
  }
}

bool read_members(Window& window, std::string_view list, const ObjectVisitor& visitor,
                  std::int64_t& items) {
  window.pass();
  for (;;) {
    std::optional<char> next = window.peek();
    if (!next) return false;
    if (*next == '}') return true;
    if (*next == ',') {
      window.pass();
      continue;
    }
    if (*next != '"') fail_json(window);
    const auto quoted = window.value();
    if (!quoted) return false;
    const std::string key(quoted->substr(1, quoted->size() - 2));
    next = window.peek();
    if (!next) return false;
    if (*next != ':') fail_json(window);
    window.pass();
    next = window.peek();
    if (!next) return false;
    if (key == list && *next == '[') {
      if (!read_items(window, visitor, items)) return false;
      continue;
    }
    const auto value = window.value();
    if (!value) return false;
    if (value->empty()) fail_json(window);
    visitor.member(key, *value);
  }
}

}  // namespace

std::size_t skip_json_space(std::string_view text, std::size_t at) {
  while (at < text.size() && is_space(text[at])) ++at;
  return at;
}

std::size_t end_of_json_value(std::string_view text, std::size_t at) {
  if (at >= text.size()) return kNone;
  const char c = text[at];
  if (c == '"') return end_of_quoted(text, at);
  if (c == '{' || c == '[') return end_of_nested(text, at);
  while (at < text.size() && !ends_scalar(text[at])) ++at;
  return at;
}

ObjectStreamEnd read_objects(ByteStream& bytes, std::string_view list,
                             const ObjectVisitor& visitor) {
  Window window(bytes);
  ObjectStreamEnd out;
  std::optional<char> first = window.peek();
  for (const char c : {'\xef', '\xbb', '\xbf'}) {  // the mark that UTF-8 may begin with
    if (first != c) break;
    window.pass();
    first = window.peek();
  }
  if (!first || (*first != '{' && *first != '[')) {
    fail_input(window.name(), "it is no JSON object and no list");
  }
  const bool is_whole = *first == '[' ? read_items(window, visitor, out.items)
                                      : read_members(window, list, visitor, out.items);
  out.is_cut = !is_whole || bytes.is_cut();
  return out;
}

std::optional<double> json_number(std::string_view value) {
  if (value.size() > 1 && value.front() == '"') value = value.substr(1, value.size() - 2);
  double out = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), out);
  if (error != std::errc() || end != value.data() + value.size()) return std::nullopt;
  return out;
}

std::optional<std::int64_t> json_integer(std::string_view value) {
  if (value.size() > 1 && value.front() == '"') value = value.substr(1, value.size() - 2);
  std::int64_t out = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), out);
  if (error != std::errc() || end != value.data() + value.size()) return std::nullopt;
  return out;
}

std::optional<std::int64_t> json_thousandths(std::string_view value) {
  if (value.size() > 1 && value.front() == '"') value = value.substr(1, value.size() - 2);
  const bool is_negative = !value.empty() && value.front() == '-';
  if (is_negative) value.remove_prefix(1);
  std::int64_t out = 0;
  int decimals = -1;  // behind the point
  bool has_digits = false;
  const auto push = [&](int digit) {
    return !__builtin_mul_overflow(out, 10, &out) && !__builtin_add_overflow(out, digit, &out);
  };
  for (const char c : value) {
    if (c == '.' && decimals < 0) {
      decimals = 0;
    } else if (c >= '0' && c <= '9') {
      has_digits = true;
      if (decimals >= 3) continue;
      if (!push(c - '0')) return std::nullopt;
      if (decimals >= 0) ++decimals;
    } else {
      // An exponent: some writers print large stamps so.
      const auto real = json_number(value);
      if (!real || !(*real < 1e15)) return std::nullopt;
      const auto whole = static_cast<std::int64_t>(*real * 1000);
      return is_negative ? -whole : whole;
    }
  }
  if (!has_digits) return std::nullopt;
  for (int d = std::max(decimals, 0); d < 3; ++d) {
    if (!push(0)) return std::nullopt;
  }
  return is_negative ? -out : out;
}

std::string_view json_text(std::string_view value, std::string& store) {
  if (value.size() < 2 || value.front() != '"') return value;
  value = value.substr(1, value.size() - 2);
  if (value.find('\\') == kNone) return value;
  store.clear();
  for (std::size_t i = 0; i < value.size(); ++i) {
    if (value[i] != '\\' || i + 1 == value.size()) {
      store += value[i];
      continue;
    }
    const char c = value[++i];
    if (c == 'n' || c == 't' || c == 'r') {
      store += ' ';
    } else if (c == 'u' && i + 4 < value.size()) {
      unsigned code = '?';
      std::from_chars(value.data() + i + 1, value.data() + i + 5, code, 16);
      store += code < 0x80 ? static_cast<char>(code) : '?';
      i += 4;
    } else {
      store += c;
    }
  }
  return store;
}

}  // namespace tracestep
