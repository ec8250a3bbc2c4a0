// Streams of token ids: from files (headerless, .npy, llm.c), from memory, and parts of either.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/enum_words.h"
#include "base/hash.h"

namespace tracestep {

// Returns what a stream stores for a token whose loss does not count, such as one of a prompt.
constexpr std::int64_t untrained(std::int64_t id) {
  return ~id;
}
constexpr bool is_trained(std::int64_t token) {
  return token >= 0;
}
constexpr std::int64_t id_of(std::int64_t token) {
  return is_trained(token) ? token : ~token;
}

class TokenSource {
 public:
  virtual ~TokenSource() = default;
  // The number of tokens in the stream; at least one.
  virtual std::int64_t size() const = 0;
  // The stream's name in messages, such as the path of a file.
  virtual const std::string& name() const = 0;
  // The indices at which documents begin, the first one at 0; empty: the stream is one text.
  virtual std::span<const std::int64_t> documents() const { return {}; }
  // True if some tokens are untrained().
  virtual bool masks_targets() const { return false; }
  // Fills `out` with the tokens from `start` (any number >= 0) on, wrapping around at the end of
  // the stream.
  void read(std::int64_t start, std::span<std::int64_t> out) const;

 protected:
  // Fills `out` with the tokens from `start` on; [start, start + out.size()) is in the stream.
  virtual void copy(std::int64_t start, std::span<std::int64_t> out) const = 0;
  friend class TokenRange;
};

using TokenSourcePtr = std::shared_ptr<const TokenSource>;

enum class TokenDType { kUint16, kUint32 };
TRACESTEP_WORDS(TokenDType, "uint16", "uint32");

// Opens a token file. Tokens are read on demand, so the file may be larger than memory; if it is
// truncated meanwhile, read() throws Error{kInput}. The layout is detected from the file: .npy by
// its magic (one dimension, little-endian, uint16, uint32, int32 or int64), llm.c by its header
// (GPT-2 and Llama 3 variants); everything else is headerless little-endian and needs `dtype`. If
// `dtype` is given for a file that states its own type, the two must agree. Errors: kInput when the
// file is not a regular file, is empty, truncated, or longer than its header says.
TokenSourcePtr open_token_file(const std::filesystem::path& path,
                               std::optional<TokenDType> dtype = std::nullopt);

// Makes a stream of tokens in memory. Errors: kInput when there are none.
TokenSourcePtr memory_tokens(std::string name, std::vector<std::int32_t> tokens);

// Makes a stream of consecutive documents in memory, which begin at the indices `begins`. Throws
// Error{kInput} if there are none.
TokenSourcePtr memory_documents(std::string name, std::vector<std::int32_t> tokens,
                                std::vector<std::int64_t> begins);

// Calls `visit` with all tokens in order, block by block, each with the index of its first token;
// shows progress if it takes long.
using TokenVisitor = std::function<void(std::int64_t start, std::span<const std::int64_t> block)>;
void for_each_block(const TokenSource& tokens, const TokenVisitor& visit);

// Reads every token once. If `hash` is given, adds each token to it as 8 bytes, and where documents
// begin. Throws Error{kInput}, as in `FILE: token 50257 at position 17 is beyond the vocabulary of
// 10000`, for the first id outside [0, vocabulary).
void check_vocabulary(const TokenSource& tokens, std::int64_t vocabulary, Hash* hash = nullptr);

struct TokenSplit {
  TokenSourcePtr train, validation;
};
// Splits off the last `fraction` of the stream (0 < fraction < 1, at least one token on each side)
// for validation; a stream of documents is split between two of them. Throws Error{kUsage} for
// another fraction, and Error{kInput} for a stream of one token.
TokenSplit split_tokens(const TokenSourcePtr& tokens, double fraction);

}  // namespace tracestep
