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

#include "base/hash.h"

namespace tracestep {

class TokenSource {
 public:
  virtual ~TokenSource() = default;
  // Tokens in the stream; at least one.
  virtual std::int64_t size() const = 0;
  // What messages call it: the path of a file.
  virtual const std::string& name() const = 0;
  // Fills `out` from token `start` (any number >= 0) on, going round at the end.
  void read(std::int64_t start, std::span<std::int64_t> out) const;

 protected:
  // As read(), with [start, start + out.size()) inside the stream.
  virtual void copy(std::int64_t start, std::span<std::int64_t> out) const = 0;
  friend class TokenRange;
};

using TokenSourcePtr = std::shared_ptr<const TokenSource>;

enum class TokenDType { kUint16, kUint32 };
std::optional<TokenDType> parse_token_dtype(std::string_view name);

// Opens a token file. What is read of it is read when it is asked for, so that its size does not
// matter; a file that is cut short meanwhile makes read() throw Error{kInput}. The layout is found
// out from the file: .npy by its magic (one dimension, little-endian, uint16, uint32, int32 or
// int64), llm.c by its header (GPT-2 and Llama 3 variants); everything else is headerless
// little-endian and needs `dtype`. If `dtype` is given for a file that says its own type, the two
// must agree. Errors: kInput when the file is not a regular file, empty, cut short or too long.
TokenSourcePtr open_token_file(const std::filesystem::path& path,
                               std::optional<TokenDType> dtype = std::nullopt);

// Tokens held in memory. Errors: kInput when there are none.
TokenSourcePtr memory_tokens(std::string name, std::vector<std::int32_t> tokens);

// Hands all tokens to `visit`, in order and block by block, with the place of the first of each
// block; says how far it is when that takes long.
using TokenVisitor = std::function<void(std::int64_t start, std::span<const std::int64_t> block)>;
void for_each_block(const TokenSource& tokens, const TokenVisitor& visit);

// Reads every token once, and adds them to `hash`, each as 8 bytes, if there is one. Errors: kInput
// `FILE: token 50257 at position 17 is beyond the vocabulary of 10000` for the first id outside [0,
// vocabulary).
void check_vocabulary(const TokenSource& tokens, std::int64_t vocabulary, Hash* hash = nullptr);

struct TokenSplit {
  TokenSourcePtr train, validation;
};
// The last `fraction` of the stream (0 < fraction < 1, at least one token each) for validation.
// Errors: kUsage for another fraction, kInput for a stream of one token.
TokenSplit split_tokens(const TokenSourcePtr& tokens, double fraction);

}  // namespace tracestep
