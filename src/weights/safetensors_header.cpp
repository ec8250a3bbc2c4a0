#include "weights/safetensors_header.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "base/json_events.h"
#include "base/utf8.h"
#include "weights/weight_files.h"

namespace tracestep {
namespace {

using Entry = SafetensorsFile::Entry;

constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;
constexpr std::size_t kLengthBytes = sizeof(std::uint64_t);
constexpr std::size_t kMaxShape = 64, kMaxMetadata = 65536;
constexpr std::size_t kShownBytes = 200;  // of a name, in a message
constexpr std::string_view kMetadataName = "__metadata__";

// Every element type of the format, with its size in bits.
constexpr std::array<std::pair<std::string_view, std::uint64_t>, 22> kBits = {{
    {"BOOL", 8}, {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"U8", 8},
    {"I8", 8},   {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8},
    {"I16", 16}, {"U16", 16},    {"F16", 16},    {"BF16", 16},   {"F8_E5M2FNUZ", 8},
    {"I32", 32}, {"U32", 32},    {"F32", 32},    {"C64", 64},    {"F64", 64},
    {"I64", 64}, {"U64", 64},
}};

template <class... Args>
[[noreturn]] void fail(const std::string& file, fmt::format_string<Args...> format,
                       Args&&... args) {
  fail_input("safetensors", "{}: {}", file, fmt::format(format, std::forward<Args>(args)...));
}

// --- the JSON text ------------------------------------------------------------------------------

// Reads the header from parser events: held as JSON values it would take twenty times its size.
class HeaderEvents : public JsonEvents {
 public:
  HeaderEvents(const std::string& file, SafetensorsHeader& out) : file_(file), out_(out) {}

  void null() override { scalar("null"); }
  void boolean(bool) override { scalar("a boolean"); }
  void real(double v) override { scalar(fmt::format("{}", v)); }
  void integer(std::int64_t v) override {
    if (place_ != Place::kShape && place_ != Place::kOffsets) return scalar(std::to_string(v));
    if (v < 0) fail_number(std::to_string(v));
    if (place_ == Place::kOffsets) {
      if (offsets_ < 2) (offsets_ == 0 ? entry_.begin : entry_.end) = static_cast<std::uint64_t>(v);
      ++offsets_;
      return;
    }
    if (entry_.shape.size() == kMaxShape) {
      fail(file_, "tensor {} has more than {} dimensions", shown(), kMaxShape);
    }
    entry_.shape.push_back(v);
  }

  void text(std::string& v) override {
    if (place_ == Place::kMetadata) {
      if (!out_.metadata.emplace(key_, std::move(v)).second) fail_twice(key_);
      if (out_.metadata.size() > kMaxMetadata) {
        fail(file_, "__metadata__ has more than {} members", kMaxMetadata);
      }
    } else if (place_ == Place::kTensor && key_ == "dtype") {
      const auto type = std::ranges::find(kBits, v, [](auto& p) { return p.first; });
      if (type == kBits.end()) {
        fail(file_, "tensor {} has the unknown dtype {}", shown(), message_line(v, kShownBytes));
      }
      entry_.dtype = type->first;
    } else {
      scalar("a text");
    }
  }

  void key(std::string& name) override {
    if (place_ == Place::kTop) {
      if (name.find('\0') != name.npos) {
        fail(file_, "the tensor name {} contains NUL", message_line(name, kShownBytes));
      }
      entry_ = {std::move(name), {}, {}, 0, 0};
      return;
    }
    key_ = std::move(name);
    if (place_ != Place::kTensor) return;
    const auto member = std::ranges::find(kMembers, key_);
    if (member == kMembers.end()) return;
    bool& seen = seen_[static_cast<std::size_t>(member - kMembers.begin())];
    if (std::exchange(seen, true)) fail_twice(key_);
  }

  void begin_object() override {
    if (place_ == Place::kStart) {
      place_ = Place::kTop;
    } else if (place_ == Place::kTop) {
      place_ = entry_.name == kMetadataName ? Place::kMetadata : Place::kTensor;
      if (place_ == Place::kMetadata && std::exchange(has_metadata_, true)) {
        fail_twice(entry_.name);
      }
      seen_ = {};
      offsets_ = 0;
    } else {
      scalar("an object");
      skip();
    }
  }
  void end_object() override {
    if (place_ == Place::kSkipped) return leave();
    if (place_ == Place::kTensor) add_entry();
    place_ = Place::kTop;
  }

  void begin_array() override {
    if (place_ == Place::kTensor && key_ == "shape") {
      place_ = Place::kShape;
    } else if (place_ == Place::kTensor && key_ == "data_offsets") {
      place_ = Place::kOffsets;
    } else {
      scalar("a list");
      skip();
    }
  }
  void end_array() override {
    if (place_ == Place::kSkipped) return leave();
    place_ = Place::kTensor;
  }

 private:
  enum class Place { kStart, kTop, kMetadata, kTensor, kShape, kOffsets, kSkipped };
  static constexpr std::array<std::string_view, 3> kMembers = {"dtype", "shape", "data_offsets"};

  std::string shown() const { return message_line(entry_.name, kShownBytes); }

  [[noreturn]] void fail_twice(const std::string& key) const {
    fail(file_, "not valid JSON: the key \"{}\" occurs twice in one object",
         message_line(key, kShownBytes));
  }
  [[noreturn]] void fail_number(const std::string& seen) const {
    fail(file_, "tensor {}: {} must hold whole numbers from 0 to 2^63-1, not {}", shown(), key_,
         seen);
  }

  // Fails for a value that is neither in a list of numbers nor an expected string.
  void scalar(const std::string& what) const {
    switch (place_) {
      case Place::kStart: fail(file_, "the header is not a JSON object");
      case Place::kTop:
        if (entry_.name == kMetadataName) fail(file_, "__metadata__ is not an object of strings");
        fail(file_, "tensor {} is not an object", shown());
      case Place::kMetadata:
        fail(file_, "__metadata__ {} is not a string", message_line(key_, kShownBytes));
      case Place::kTensor:
        if (std::ranges::find(kMembers, key_) != kMembers.end()) {
          fail(file_, "tensor {} has no {}, but {} in its place", shown(), key_, what);
        }
        return;  // a member of a later version of the format
      case Place::kShape:
      case Place::kOffsets: fail_number(what);
      case Place::kSkipped: return;
    }
  }

  void skip() {
    if (place_ != Place::kSkipped) place_ = Place::kSkipped;
    ++skipped_depth_;
  }
  void leave() {
    if (--skipped_depth_ == 0) place_ = Place::kTensor;
  }

  void add_entry() {
    if (!seen_[0]) fail(file_, "tensor {} has no dtype", shown());
    if (!seen_[1]) fail(file_, "tensor {} has no shape", shown());
    if (!seen_[2] || offsets_ != 2) {
      fail(file_, "tensor {} has no data_offsets [begin, end]", shown());
    }
    entry_.shape.shrink_to_fit();
    entry_.name.shrink_to_fit();
    out_.entries.push_back(std::move(entry_));
  }

  const std::string& file_;
  SafetensorsHeader& out_;
  Place place_ = Place::kStart;
  std::string key_;
  Entry entry_;
  std::array<bool, kMembers.size()> seen_{};
  std::size_t offsets_ = 0, skipped_depth_ = 0;
  bool has_metadata_ = false;
};

// Rejects what the JSON parser would let pass: it stops at NUL and skips a byte order mark.
void check_text(const std::string& file, std::string_view text) {
  if (!is_utf8(text)) fail(file, "the header is not UTF-8");
  if (text.find('\0') != text.npos) fail(file, "the header contains a NUL byte");
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first == text.npos || text[first] != '{') fail(file, "the header is not a JSON object");
}

// --- the tensors --------------------------------------------------------------------------------
// Fails unless the tensor has as many bytes as its dtype and shape need.
void check_size(const std::string& file, const Entry& entry) {
  const std::string shown = message_line(entry.name, kShownBytes);
  if (entry.begin > entry.end) {
    fail(file, "tensor {} ends at {} before it begins at {}", shown, entry.end, entry.begin);
  }
  std::uint64_t bits = 1;
  bool overflow = false;
  for (std::int64_t dim : entry.shape) {
    overflow |= __builtin_mul_overflow(bits, static_cast<std::uint64_t>(dim), &bits);
  }
  const auto type = std::ranges::find(kBits, entry.dtype, [](auto& p) { return p.first; });
  overflow |= __builtin_mul_overflow(bits, type->second, &bits);
  if (overflow) fail(file, "tensor {}: its size does not fit 64 bits", shown);
  if (bits % 8 != 0) fail(file, "tensor {}: {} bits are not whole bytes", shown, bits);
  if (bits / 8 != entry.end - entry.begin) {
    fail(file, "tensor {} has {} bytes, its dtype and shape need {}", shown,
         entry.end - entry.begin, bits / 8);
  }
}

void check_names(const std::string& file, const std::vector<Entry>& entries) {
  std::vector<std::string_view> names;
  names.reserve(entries.size());
  for (const Entry& entry : entries) names.emplace_back(entry.name);
  std::ranges::sort(names);
  const auto twice = std::ranges::adjacent_find(names);
  if (twice == names.end()) return;
  fail(file, "not valid JSON: the key \"{}\" occurs twice in one object",
       message_line(*twice, kShownBytes));
}

// Sorts the tensors and fails unless they cover the data exactly: no holes, no overlap, no rest.
void check_layout(const std::string& file, std::vector<Entry>& entries, std::uint64_t data_bytes) {
  std::ranges::sort(entries, {}, [](const Entry& e) { return std::tie(e.begin, e.end, e.name); });
  std::uint64_t expected = 0;
  for (const Entry& entry : entries) {
    if (entry.begin != expected) {
      fail(file, "tensor {} begins at {}, {} {}", message_line(entry.name, kShownBytes),
           entry.begin,
           entry.begin < expected ? "inside the one before, which ends at" : "leaving a hole after",
           expected);
    }
    expected = entry.end;
  }
  if (expected != data_bytes) {
    fail(file, "the tensors end at byte {} of the data, the file holds {}{}", expected, data_bytes,
         expected > data_bytes ? "; it is truncated" : "");
  }
}

// The most tensors there may be, to reserve the vector once: growing takes up to thrice its memory.
std::size_t most_tensors(std::string_view text) {
  constexpr std::string_view kShortest = R"("":{"dtype":"U8","shape":[],"data_offsets":[0,1]},)";
  const auto objects = static_cast<std::size_t>(std::ranges::count(text, '{'));
  return std::min(objects, text.size() / kShortest.size() + 1);
}

}  // namespace

SafetensorsHeader parse_safetensors_header(std::string_view text, std::uint64_t data_bytes,
                                           const std::string& name) {
  check_text(name, text);
  SafetensorsHeader header;
  header.entries.reserve(most_tensors(text));
  HeaderEvents events(name, header);
  parse_json(text, "safetensors " + name, events);
  check_names(name, header.entries);
  for (const Entry& entry : header.entries) check_size(name, entry);
  check_layout(name, header.entries, data_bytes);
  return header;
}

namespace {

// True if `text` may be the start of a header, which is a JSON object.
bool may_be_header(std::span<const std::byte> text) {
  const auto is_blank = [](std::byte b) {
    return b == std::byte{' '} || (b >= std::byte{'\t'} && b <= std::byte{'\r'});
  };
  const auto first = std::ranges::find_if_not(text, is_blank);
  return first == text.end() || *first == std::byte{'{'};
}

[[noreturn]] void fail_foreign(std::span<const std::byte> start, const ForeignFile& foreign,
                               const std::string& name) {
  const std::string what = !foreign.what.empty() ? fmt::format("it is {}", foreign.what)
                           : start.size() < kLengthBytes
                               ? fmt::format("it has only {} bytes", start.size())
                               : "what follows its first 8 bytes is not a JSON object";
  throw Error(ErrorCode::kInput, "safetensors",
              fmt::format("{} is no safetensors file: {}", name, what), std::string(foreign.hint));
}

}  // namespace

std::uint64_t safetensors_header_bytes(std::span<const std::byte> start, std::uint64_t file_bytes,
                                       const std::string& name) {
  std::uint64_t size = 0;
  if (start.size() < kLengthBytes) fail_foreign(start, foreign_file(start), name);
  std::memcpy(&size, start.data(), kLengthBytes);
  const bool may_be = may_be_header(start.subspan(kLengthBytes));
  if (size > kMaxHeaderBytes || !may_be) {
    const ForeignFile foreign = foreign_file(start);
    if (!may_be || !foreign.what.empty()) fail_foreign(start, foreign, name);
    fail(name, "the header claims {} bytes; at most {} are allowed", size, kMaxHeaderBytes);
  }
  if (size > file_bytes - kLengthBytes) {
    fail(name, "the header claims {} bytes, the file has {} after the length; it is truncated",
         size, file_bytes - kLengthBytes);
  }
  return size;
}

}  // namespace tracestep
