// From text to token ids and back: one token per byte, or byte-pair encoding trained on the spot.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tracestep {

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  // "bytes" or "bpe".
  virtual std::string name() const = 0;
  virtual std::int64_t vocab_size() const = 0;
  virtual std::vector<std::int32_t> encode(std::string_view text) const = 0;
  // The raw bytes of `tokens`; they may not be valid UTF-8 (a character may be cut), so show them
  // through printable() of base/utf8.h. Errors: kInput for an id outside the vocabulary.
  virtual std::string decode(std::span<const std::int64_t> tokens) const = 0;
  // Writes a file that load_tokenizer() reads. Errors: kOutput.
  virtual void save(const std::filesystem::path& path) const = 0;
};

std::unique_ptr<Tokenizer> byte_tokenizer();

// Whether this build has byte-pair encoding (the SentencePiece library).
bool has_bpe();

// Trains byte-pair encoding on `text`: same text, same vocabulary, whatever the machine. The
// vocabulary may be smaller than asked for when the text is short. Characters without a piece are
// encoded byte by byte, so decode(encode(text)) gives back UTF-8 text unchanged, except that U+2581
// becomes a space; bytes that are not UTF-8 become U+FFFD. Of a long text, 16 MiB are used for
// training. Errors: kUsage for fewer than 300 tokens (256 of them are the bytes) or in a build
// without has_bpe(), kInput for an empty text.
std::unique_ptr<Tokenizer> train_bpe(std::string_view text, std::int64_t vocab_size);

// A tokenizer of either kind, from a file written by save(). Errors: kInput when the file is
// missing or malformed.
std::unique_ptr<Tokenizer> load_tokenizer(const std::filesystem::path& path);

}  // namespace tracestep
