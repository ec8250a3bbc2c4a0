#include "train/safetensors_header.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>
#include <tuple>

#include "base/json.h"
#include "base/utf8.h"

namespace tracestep {
namespace {

using Entry = SafetensorsFile::Entry;

constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;

// Every element type of the format, with its size in bits.
constexpr std::array<std::pair<std::string_view, std::uint64_t>, 22> kBits = {{
    {"BOOL", 8}, {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"U8", 8},
    {"I8", 8},   {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8},
    {"I16", 16}, {"U16", 16},    {"F16", 16},    {"BF16", 16},   {"F8_E5M2FNUZ", 8},
    {"I32", 32}, {"U32", 32},    {"F32", 32},    {"C64", 64},    {"F64", 64},
    {"I64", 64}, {"U64", 64},
}};

class HeaderParser {
 public:
  HeaderParser(std::span<const std::byte> file, const std::string& name)
      : file_(file), name_(name) {}

  SafetensorsHeader parse() {
    const std::string_view text = header_text();
    check_text(text);
    const Json json = Json::parse(text, "safetensors " + name_);
    SafetensorsHeader header;
    for (const auto& [key, value] : json.members()) {
      if (key == "__metadata__") {
        header.metadata = metadata(value);
      } else {
        header.entries.push_back(entry(key, value));
      }
    }
    header.data_start = sizeof(std::uint64_t) + text.size();
    check_layout(header.entries, file_.size() - header.data_start);
    return header;
  }

 private:
  template <class... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) const {
    fail_input("safetensors", "{}: {}", name_, fmt::format(format, std::forward<Args>(args)...));
  }

  std::string_view header_text() const {
    std::uint64_t size = 0;
    if (file_.size() < sizeof(size)) {
      fail("{} bytes are no safetensors file; it starts with 8 bytes of header length",
           file_.size());
    }
    std::memcpy(&size, file_.data(), sizeof(size));
    if (size > kMaxHeaderBytes) {
      fail("the header claims {} bytes; at most {} are allowed", size, kMaxHeaderBytes);
    }
    if (size > file_.size() - sizeof(size)) {
      fail("the header claims {} bytes, the file has {} after the length; it is truncated", size,
           file_.size() - sizeof(size));
    }
    return {reinterpret_cast<const char*>(file_.data()) + sizeof(size),
            static_cast<std::size_t>(size)};
  }

  // What the JSON parser would let pass: it stops at NUL and skips a byte order mark.
  void check_text(std::string_view text) const {
    if (!is_utf8(text)) fail("the header is not UTF-8");
    if (text.find('\0') != text.npos) fail("the header contains a NUL byte");
    const std::size_t first = text.find_first_not_of(" \t\r\n");
    if (first == text.npos || text[first] != '{') fail("the header is not a JSON object");
  }

  std::map<std::string, std::string> metadata(const Json& json) const {
    if (!json.is_object()) fail("__metadata__ is not an object of strings");
    std::map<std::string, std::string> out;
    for (const auto& [key, value] : json.members()) {
      if (!value.is_string()) fail("__metadata__ {} is not a string", printable(key));
      out.emplace(key, value.as_string());
    }
    return out;
  }

  Entry entry(const std::string& name, const Json& json) const {
    const std::string shown = printable(name);
    if (name.find('\0') != name.npos) fail("the tensor name {} contains NUL", shown);
    if (!json.is_object()) fail("tensor {} is not an object", shown);
    const Json* dtype = json.find("dtype");
    const Json* shape = json.find("shape");
    const Json* offsets = json.find("data_offsets");
    if (dtype == nullptr || !dtype->is_string()) fail("tensor {} has no dtype", shown);
    if (shape == nullptr || !shape->is_array()) fail("tensor {} has no shape", shown);
    if (offsets == nullptr || !offsets->is_array() || offsets->size() != 2) {
      fail("tensor {} has no data_offsets [begin, end]", shown);
    }
    Entry out{name, dtype->as_string(), {}, 0, 0};
    for (const Json& dim : shape->items()) out.shape.push_back(whole(dim, shown, "shape"));
    out.begin = static_cast<std::uint64_t>(whole(offsets->items()[0], shown, "data_offsets"));
    out.end = static_cast<std::uint64_t>(whole(offsets->items()[1], shown, "data_offsets"));
    check_size(out);
    return out;
  }

  std::int64_t whole(const Json& json, const std::string& tensor, const char* what) const {
    if (!json.is_int() || json.as_int() < 0) {
      fail("tensor {}: {} must hold whole numbers from 0 to 2^63-1, not {}", tensor, what,
           json.is_number() ? json.dump() : "something else");
    }
    return json.as_int();
  }

  void check_size(const Entry& entry) const {
    const std::string shown = printable(entry.name);
    const auto type = std::ranges::find(kBits, entry.dtype, [](auto& p) { return p.first; });
    if (type == kBits.end()) {
      fail("tensor {} has the unknown dtype {}", shown, printable(entry.dtype));
    }
    if (entry.begin > entry.end) {
      fail("tensor {} ends at {} before it begins at {}", shown, entry.end, entry.begin);
    }
    std::uint64_t bits = 1;
    bool overflow = false;
    for (std::int64_t dim : entry.shape) {
      overflow |= __builtin_mul_overflow(bits, static_cast<std::uint64_t>(dim), &bits);
    }
    overflow |= __builtin_mul_overflow(bits, type->second, &bits);
    if (overflow) fail("tensor {}: its size does not fit 64 bits", shown);
    if (bits % 8 != 0) fail("tensor {}: {} bits are not whole bytes", shown, bits);
    if (bits / 8 != entry.end - entry.begin) {
      fail("tensor {} has {} bytes, its dtype and shape need {}", shown, entry.end - entry.begin,
           bits / 8);
    }
  }

  // The tensors must cover the data exactly: no holes, no overlap, nothing behind the last.
  void check_layout(std::vector<Entry>& entries, std::uint64_t data_bytes) const {
    std::ranges::sort(entries, {}, [](const Entry& e) { return std::tie(e.begin, e.end, e.name); });
    std::uint64_t expected = 0;
    for (const Entry& entry : entries) {
      if (entry.begin != expected) {
        fail("tensor {} begins at {}, {} {}", printable(entry.name), entry.begin,
             entry.begin < expected ? "inside the one before, which ends at"
                                    : "leaving a hole after",
             expected);
      }
      expected = entry.end;
    }
    if (expected != data_bytes) {
      fail("the tensors end at byte {} of the data, the file holds {}{}", expected, data_bytes,
           expected > data_bytes ? "; it is truncated" : "");
    }
  }

  std::span<const std::byte> file_;
  const std::string& name_;
};

}  // namespace

SafetensorsHeader parse_safetensors_header(std::span<const std::byte> file,
                                           const std::string& name) {
  return HeaderParser(file, name).parse();
}

}  // namespace tracestep
