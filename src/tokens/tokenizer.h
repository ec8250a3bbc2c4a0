// Converts text to token ids and back: one token per byte, or byte-pair encoding that is trained
// here or belongs to a published model.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tracestep {

// The key in the metadata of weights that holds the hash of the tokenizer they were trained with.
inline constexpr const char* kTokenizerHash = "tokenizer_xxh3";

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  // The kind of tokenizer: "bytes" or "bpe".
  virtual std::string name() const = 0;
  virtual std::int64_t vocab_size() const = 0;
  virtual std::vector<std::int32_t> encode(std::string_view text) const = 0;
  // The raw bytes of `tokens`; they may not be valid UTF-8 (a character may be cut), so show them
  // through printable() of base/utf8.h. Errors: kInput for an id outside the vocabulary.
  virtual std::string decode(std::span<const std::int64_t> tokens) const = 0;
  // The exact number of bytes of text that `token` stands for; nullopt: it stands for unknown text,
  // or is no token.
  virtual std::optional<std::int64_t> byte_count(std::int64_t token) const = 0;
  // The tokens that the model expects before a new text, such as a prompt. encode() does not add
  // them.
  virtual std::vector<std::int32_t> start() const { return {}; }
  // The content of the tokenizer's file, which parse_tokenizer() reads. Equal tokenizers have equal
  // content.
  virtual std::string content() const = 0;
  // A tokenizer.json that encodes texts into the same tokens; empty: none is known.
  virtual std::string tokenizer_json() const { return {}; }

  // The hash of content(), as 16 hexadecimal digits.
  std::string hash() const;
  // True if the file at `path` equals content(), byte for byte.
  bool is_saved_at(const std::filesystem::path& path) const;
  // Writes content() to `path` unless it is there already. Throws Error{kOutput}.
  void save(const std::filesystem::path& path) const;
};

std::unique_ptr<Tokenizer> byte_tokenizer();

// True if this build has byte-pair encoding (the SentencePiece library).
bool has_bpe();

// Trains byte-pair encoding on `text`: same text, same vocabulary, whatever the machine. The
// vocabulary may be smaller than asked for when the text is short. Characters without a piece are
// encoded byte by byte, so decode(encode(text)) gives back UTF-8 text unchanged, except that U+2581
// becomes a space; bytes that are not UTF-8 become U+FFFD. Of a long text, 16 MiB are used for
// training. Errors: kUsage for fewer than 300 tokens (256 of them are the bytes) or in a build
// without has_bpe(), kInput for an empty text.
std::unique_ptr<Tokenizer> train_bpe(std::string_view text, std::int64_t vocab_size);

// True if the content of a tokenizer's file is a tokenizer.json.
bool is_tokenizer_json(std::string_view content);
// A tokenizer of any kind, from the content of its file: bytes, SentencePiece, tokenizer.json
// (tokenizer_kinds.h); `origin` names it in messages. Errors: kInput when it is malformed.
std::unique_ptr<Tokenizer> parse_tokenizer(const std::string& content, const std::string& origin);
// The tokenizer's file at `path`: the path itself, or in the folder of a published model its
// tokenizer.json, else its tokenizer.model. Throws Error{kInput} for a folder that has neither.
std::filesystem::path tokenizer_file(const std::filesystem::path& path);
inline constexpr const char* kTokenizerJson = "tokenizer.json";
inline constexpr const char* kTokenizerModel = "tokenizer.model";
// Loads the tokenizer from tokenizer_file(path), which is read whole. Errors: kInput, also when the
// file is missing.
std::unique_ptr<Tokenizer> load_tokenizer(const std::filesystem::path& path);
// The largest file that is read, enough for a million pieces.
inline constexpr std::uint64_t kMostTokenizerBytes = std::uint64_t{64} << 20;

}  // namespace tracestep
