#include "tokens/token_file.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "base/enum_words.h"
#include "base/error.h"
#include "base/input_file.h"
#include "base/reading_progress.h"
#include "base/utf8.h"
#include "tokens/npy.h"

namespace tracestep {
namespace {

enum class Width { kUint16, kUint32, kInt32, kInt64 };
TRACESTEP_WORDS(Width, "uint16", "uint32", "int32", "int64");

constexpr std::size_t bytes_of(Width width) {
  return width == Width::kUint16 ? 2 : width == Width::kInt64 ? 8 : 4;
}

// Converts elements of type T to int64; memcpy reads each, as the bytes hold no objects of T.
template <class T>
void widen(const std::byte* from, std::span<std::int64_t> out) {
  for (std::size_t i = 0; i < out.size(); ++i) {
    T value;
    std::memcpy(&value, from + i * sizeof(T), sizeof(T));
    out[i] = static_cast<std::int64_t>(value);
  }
}

// Where the tokens lie in a file: their width, the byte at which they start, and their number.
struct Layout {
  Width width;
  std::size_t start = 0, count = 0;
};

constexpr std::size_t kPieceBytes = std::size_t{1} << 16;  // read at once

class FileTokens : public TokenSource {
 public:
  FileTokens(InputFile file, const Layout& layout)
      : file_(std::move(file)), name_(file_.path().string()), layout_(layout) {}

  std::int64_t size() const override { return static_cast<std::int64_t>(layout_.count); }
  const std::string& name() const override { return name_; }

 private:
  void copy(std::int64_t start, std::span<std::int64_t> out) const override {
    const std::size_t width = bytes_of(layout_.width);
    std::uint64_t offset = layout_.start + static_cast<std::uint64_t>(start) * width;
    alignas(std::int64_t) std::array<std::byte, kPieceBytes> piece;
    while (!out.empty()) {
      const std::size_t count = std::min(out.size(), kPieceBytes / width);
      const auto bytes = std::span(piece).first(count * width);
      file_.read(offset, bytes);
      widen_all(bytes.data(), out.first(count));
      out = out.subspan(count);
      offset += bytes.size();
    }
  }

  void widen_all(const std::byte* from, std::span<std::int64_t> out) const {
    switch (layout_.width) {
      case Width::kUint16: return widen<std::uint16_t>(from, out);
      case Width::kUint32: return widen<std::uint32_t>(from, out);
      case Width::kInt32: return widen<std::int32_t>(from, out);
      case Width::kInt64: return widen<std::int64_t>(from, out);
    }
  }

  InputFile file_;
  std::string name_;
  Layout layout_;
};

class MemoryTokens : public TokenSource {
 public:
  MemoryTokens(std::string name, std::vector<std::int32_t> tokens)
      : name_(std::move(name)), tokens_(std::move(tokens)) {}

  std::int64_t size() const override { return static_cast<std::int64_t>(tokens_.size()); }
  const std::string& name() const override { return name_; }

 protected:
  std::span<const std::int32_t> all() const { return tokens_; }

 private:
  void copy(std::int64_t start, std::span<std::int64_t> out) const override {
    std::copy_n(tokens_.begin() + start, out.size(), out.begin());
  }

  std::string name_;
  std::vector<std::int32_t> tokens_;
};

class Documents : public MemoryTokens {
 public:
  Documents(std::string name, std::vector<std::int32_t> tokens, std::vector<std::int64_t> begins)
      : MemoryTokens(std::move(name), std::move(tokens)),
        begins_(std::move(begins)),
        masks_(std::ranges::any_of(all(), [](std::int32_t token) { return !is_trained(token); })) {}
  std::span<const std::int64_t> documents() const override { return begins_; }
  bool masks_targets() const override { return masks_; }

 private:
  std::vector<std::int64_t> begins_;
  bool masks_;
};

// The layout of a .npy file. `start`: its first bytes, at least as many as the longest header.
Layout npy_layout(std::span<const std::byte> start, std::uint64_t size, const std::string& name) {
  const NpyHeader header = parse_npy_header(start, name);
  constexpr std::array<std::pair<std::string_view, Width>, 4> kKnown = {{{"<u2", Width::kUint16},
                                                                         {"<u4", Width::kUint32},
                                                                         {"<i4", Width::kInt32},
                                                                         {"<i8", Width::kInt64}}};
  const auto known = std::ranges::find(kKnown, header.descr, [](auto& p) { return p.first; });
  if (known == kKnown.end()) {
    fail_input("tokens"_field, "{}: element type {}; <u2, <u4, <i4 and <i8 can be read", name,
               message_line(header.descr));
  }
  if (header.shape.size() != 1 || header.fortran_order) {
    fail_input("tokens"_field, "{}: {} dimensions{}; tokens are one dimension in C order", name,
               header.shape.size(), header.fortran_order ? " in Fortran order" : "");
  }
  const auto count = static_cast<std::uint64_t>(header.shape[0]);
  const std::uint64_t held = size - header.data_start;
  const std::size_t width = bytes_of(known->second);
  if (held % width != 0 || held / width != count) {
    fail_input("tokens"_field,
               "{}: the header says {} tokens of {} bytes, the file has {} bytes of data", name,
               count, width, held);
  }
  return {known->second, header.data_start, count};
}

constexpr std::size_t kLlmcHeaderBytes = 1024;
constexpr std::int32_t kLlmcGpt2 = 20240520, kLlmcEval = 20240522, kLlmcLlama3 = 20240801;

// The layout of a file of llm.c; nullopt: it does not start with a header of llm.c.
std::optional<Layout> llmc_layout(std::span<const std::byte> start, std::uint64_t size,
                                  const std::string& name) {
  std::array<std::int32_t, 3> header{};
  if (start.size() < sizeof(header)) return std::nullopt;
  std::memcpy(header.data(), start.data(), sizeof(header));
  const auto [magic, version, claimed] = header;
  if (magic == kLlmcEval && version == 1) {
    fail_input("tokens"_field, "{} is an llm.c evaluation file; a token file is needed", name);
  }
  const bool is_gpt2 = magic == kLlmcGpt2 && version == 1;
  const bool is_llama3 = magic == kLlmcLlama3 && version == 7;
  if (!is_gpt2 && !is_llama3) return std::nullopt;
  const Width width = is_gpt2 ? Width::kUint16 : Width::kUint32;
  const auto count = static_cast<std::size_t>(std::max(claimed, 0));
  const std::size_t expected = kLlmcHeaderBytes + count * bytes_of(width);
  if (claimed < 0 || size != expected) {
    fail_input("tokens"_field, "{}: its llm.c header says {} tokens, so {} bytes; the file has {}",
               name, claimed, expected, size);
  }
  return Layout{width, kLlmcHeaderBytes, count};
}

Layout headerless_layout(std::uint64_t size, const std::string& name,
                         std::optional<TokenDType> dtype) {
  if (!dtype) {
    throw Error(ErrorCode::kUsage, "tokens"_field, name + " does not say how wide its tokens are",
                "add " TRACESTEP_OPTION(token_dtype) " uint16 or uint32");
  }
  const Width width = *dtype == TokenDType::kUint16 ? Width::kUint16 : Width::kUint32;
  if (size % bytes_of(width) != 0) {
    fail_input("tokens"_field, "{}: {} bytes are not a whole number of {} tokens", name, size,
               name_of(width));
  }
  return {width, 0, size / bytes_of(width)};
}

void check_agreement(const Layout& layout, const std::string& name, TokenDType dtype) {
  const Width asked = dtype == TokenDType::kUint16 ? Width::kUint16 : Width::kUint32;
  if (asked == layout.width) return;
  throw Error(ErrorCode::kUsage, "tokens"_field,
              fmt::format("{} says its tokens are {}, " TRACESTEP_OPTION(token_dtype) " says {}",
                          name, name_of(layout.width), name_of(asked)),
              "leave " TRACESTEP_OPTION(token_dtype) " out");
}

Layout find_layout(const InputFile& file, const std::string& name,
                   std::optional<TokenDType> dtype) {
  if (file.size() == 0) fail_input("tokens"_field, "{} is empty", name);
  std::vector<std::byte> start(std::min<std::uint64_t>(file.size(), kMaxNpyHeaderBytes));
  file.read(0, start);
  std::optional<Layout> layout;
  if (is_npy(start) || file.path().extension() == ".npy") {
    layout = npy_layout(start, file.size(), name);
  } else {
    layout = llmc_layout(start, file.size(), name);
  }
  if (!layout) return headerless_layout(file.size(), name, dtype);
  if (dtype) check_agreement(*layout, name, *dtype);
  return *layout;
}

}  // namespace

// A part of another stream; read() wraps around within the part.
class TokenRange : public TokenSource {
 public:
  TokenRange(TokenSourcePtr tokens, std::int64_t start, std::int64_t count)
      : tokens_(std::move(tokens)), start_(start), count_(count) {
    for (const std::int64_t begin : tokens_->documents()) {
      if (begin >= start && begin < start + count) begins_.push_back(begin - start);
    }
  }

  std::int64_t size() const override { return count_; }
  const std::string& name() const override { return tokens_->name(); }
  std::span<const std::int64_t> documents() const override { return begins_; }
  bool masks_targets() const override { return tokens_->masks_targets(); }

 private:
  void copy(std::int64_t start, std::span<std::int64_t> out) const override {
    tokens_->copy(start_ + start, out);
  }

  TokenSourcePtr tokens_;
  std::int64_t start_, count_;
  std::vector<std::int64_t> begins_;  // of documents
};

void TokenSource::read(std::int64_t start, std::span<std::int64_t> out) const {
  TRACESTEP_CHECK(start >= 0, "start {}", start);
  std::int64_t at = start % size();
  while (!out.empty()) {
    const auto left = static_cast<std::size_t>(size() - at);
    const std::span<std::int64_t> part = out.first(std::min(out.size(), left));
    copy(at, part);
    out = out.subspan(part.size());
    at = 0;
  }
}

TokenSourcePtr open_token_file(const std::filesystem::path& path, std::optional<TokenDType> dtype) {
  InputFile file(path, "tokens"_field);
  const std::string name = path.string();
  const Layout layout = find_layout(file, name, dtype);
  if (layout.count == 0) fail_input("tokens"_field, "{} holds no tokens", name);
  return std::make_shared<FileTokens>(std::move(file), layout);
}

TokenSourcePtr memory_tokens(std::string name, std::vector<std::int32_t> tokens) {
  if (tokens.empty()) fail_input("tokens"_field, "{} holds no tokens", name);
  return std::make_shared<MemoryTokens>(std::move(name), std::move(tokens));
}

TokenSourcePtr memory_documents(std::string name, std::vector<std::int32_t> tokens,
                                std::vector<std::int64_t> begins) {
  if (tokens.empty()) fail_input("tokens"_field, "{} holds no documents", name);
  return std::make_shared<Documents>(std::move(name), std::move(tokens), std::move(begins));
}

void for_each_block(const TokenSource& tokens, const TokenVisitor& visit) {
  constexpr std::int64_t kBlock = std::int64_t{1} << 15;
  ReadingProgress progress("reading " + tokens.name(), tokens.size());
  std::vector<std::int64_t> buffer(static_cast<std::size_t>(std::min(kBlock, tokens.size())));
  for (std::int64_t at = 0; at < tokens.size(); at += kBlock) {
    const std::int64_t count = std::min(kBlock, tokens.size() - at);
    const auto block = std::span(buffer).first(static_cast<std::size_t>(count));
    tokens.read(at, block);
    visit(at, block);
    progress.update(at + count);
  }
}

void check_vocabulary(const TokenSource& tokens, std::int64_t vocabulary, Hash* hash) {
  // Converted to unsigned, a negative id is a huge one.
  const auto limit = static_cast<std::uint64_t>(vocabulary);
  const bool masks = tokens.masks_targets();
  const auto is_beyond = [=](std::int64_t token) {
    return static_cast<std::uint64_t>(masks ? id_of(token) : token) >= limit;
  };
  if (hash != nullptr) hash->add(std::as_bytes(tokens.documents()));
  for_each_block(tokens, [&](std::int64_t start, std::span<const std::int64_t> block) {
    if (hash != nullptr) hash->add(std::as_bytes(block));
    std::uint64_t count = 0;  // counts all: a loop without an early exit is twice as fast
    for (std::int64_t id : block) count += is_beyond(id) ? 1 : 0;
    if (count == 0) return;
    const auto bad = std::ranges::find_if(block, is_beyond);
    fail_input("tokens"_field, "{}: token {} at position {} is beyond the vocabulary of {}",
               tokens.name(), *bad, start + (bad - block.begin()), vocabulary);
  });
}

TokenSplit split_tokens(const TokenSourcePtr& tokens, double fraction) {
  if (!(fraction > 0.0 && fraction < 1.0)) {
    fail_usage("tokens"_field,
               "{} of the tokens cannot be set aside for validation; 0 < fraction < 1", fraction);
  }
  const std::int64_t size = tokens->size();
  if (size < 2) fail_input("tokens"_field, "{}: one token cannot be split in two", tokens->name());
  const auto wanted = static_cast<std::int64_t>(std::llround(static_cast<double>(size) * fraction));
  std::int64_t held_out = std::clamp<std::int64_t>(wanted, 1, size - 1);
  if (const auto begins = tokens->documents(); !begins.empty()) {
    if (begins.size() < 2) {
      fail_input("tokens"_field, "{}: one document cannot be split in two", tokens->name());
    }
    const auto later = begins.subspan(1);
    const auto at = std::ranges::lower_bound(later, size - held_out) - later.begin();
    held_out = size - later[std::min(static_cast<std::size_t>(at), later.size() - 1)];
  }
  return {std::make_shared<TokenRange>(tokens, 0, size - held_out),
          std::make_shared<TokenRange>(tokens, size - held_out, held_out)};
}

}  // namespace tracestep
