#include "tokens/npy.h"

#include <charconv>
#include <cstring>
#include <string_view>

#include "base/error.h"
#include "base/utf8.h"

namespace tracestep {
namespace {

constexpr std::size_t kMaxShape = 64;
constexpr std::string_view kMagic = "\x93NUMPY";

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Reads the dictionary literal of the header: strings, booleans and one tuple of whole numbers.
class DictParser {
 public:
  DictParser(std::string_view text, const std::string& name) : text_(text), name_(name) {}

  NpyHeader parse() {
    NpyHeader header;
    bool has_descr = false, has_order = false, has_shape = false;
    expect('{');
    while (!accept('}')) {
      const std::string key = string();
      expect(':');
      if (key == "descr" && !has_descr) {
        header.descr = string();
        has_descr = true;
      } else if (key == "fortran_order" && !has_order) {
        header.fortran_order = boolean();
        has_order = true;
      } else if (key == "shape" && !has_shape) {
        header.shape = tuple();
        has_shape = true;
      } else {
        fail(fmt::format("unexpected or repeated key {}", message_line(key)));
      }
      if (!accept(',')) {
        expect('}');
        break;
      }
    }
    skip_space();
    if (!text_.empty()) fail("text after the closing brace");
    if (!has_descr || !has_order || !has_shape) {
      fail("descr, fortran_order or shape is missing");
    }
    return header;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    fail_input("npy", "{}: malformed header: {}", name_, what);
  }

  void skip_space() {
    const std::size_t n = text_.find_first_not_of(" \t\r\n");
    text_.remove_prefix(n == text_.npos ? text_.size() : n);
  }

  bool accept(char c) {
    skip_space();
    if (text_.empty() || text_.front() != c) return false;
    text_.remove_prefix(1);
    return true;
  }

  void expect(char c) {
    if (!accept(c)) fail(fmt::format("'{}' is missing", c));
  }

  std::string string() {
    skip_space();
    const char quote = text_.empty() ? '\0' : text_.front();
    if (quote != '\'' && quote != '"') fail("a quoted string is missing (records are not read)");
    const std::size_t end = text_.find(quote, 1);
    if (end == text_.npos) fail("a string does not end");
    std::string out(text_.substr(1, end - 1));
    text_.remove_prefix(end + 1);
    return out;
  }

  bool boolean() {
    skip_space();
    for (const auto& [word, value] :
         {std::pair{std::string_view("True"), true}, std::pair{std::string_view("False"), false}}) {
      if (!text_.starts_with(word)) continue;
      text_.remove_prefix(word.size());
      return value;
    }
    fail("fortran_order is neither True nor False");
  }

  std::vector<std::int64_t> tuple() {
    std::vector<std::int64_t> out;
    expect('(');
    while (!accept(')')) {
      skip_space();
      std::int64_t value = 0;
      const auto [end, error] = std::from_chars(text_.data(), text_.data() + text_.size(), value);
      if (error != std::errc() || value < 0) fail("shape is not a tuple of whole numbers");
      if (out.size() == kMaxShape) fail(fmt::format("more than {} dimensions", kMaxShape));
      text_.remove_prefix(static_cast<std::size_t>(end - text_.data()));
      out.push_back(value);
      if (!accept(',')) {
        expect(')');
        break;
      }
    }
    return out;
  }

  std::string_view text_;
  const std::string& name_;
};

}  // namespace

bool is_npy(std::span<const std::byte> file) {
  return text_of(file).starts_with(kMagic);
}

NpyHeader parse_npy_header(std::span<const std::byte> file, const std::string& name) {
  if (!is_npy(file)) fail_input("npy", "{} does not start like an .npy file", name);
  const std::size_t version_at = kMagic.size();
  if (file.size() < version_at + 2) fail_input("npy", "{} is truncated in its header", name);
  const unsigned major = std::to_integer<unsigned>(file[version_at]);
  const unsigned minor = std::to_integer<unsigned>(file[version_at + 1]);
  if (major < 1 || major > 3 || minor != 0) {
    fail_input("npy", "{} has version {}.{}; 1.0, 2.0 and 3.0 can be read", name, major, minor);
  }
  // Version 1 has a two-byte length, the later ones four.
  const std::size_t length_bytes = major == 1 ? 2 : 4;
  const std::size_t text_at = version_at + 2 + length_bytes;
  std::uint32_t length = 0;
  if (file.size() >= text_at) std::memcpy(&length, &file[version_at + 2], length_bytes);
  if (length > kMaxNpyHeaderBytes - text_at) {
    fail_input("npy", "{}: a header of {} bytes; at most {} are read", name, length,
               kMaxNpyHeaderBytes - text_at);
  }
  if (file.size() < text_at || length > file.size() - text_at) {
    fail_input("npy", "{} is truncated in its header", name);
  }
  NpyHeader header = DictParser(text_of(file.subspan(text_at, length)), name).parse();
  header.data_start = text_at + length;
  return header;
}

}  // namespace tracestep
