// The kinds of tokenizer that tokens/tokenizer.h chooses from.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "tokens/tokenizer.h"

namespace tracestep {

// Loads byte-pair encoding by the SentencePiece library, from the bytes of a model file; `origin`
// names the file in messages. Throws Error{kInput}.
std::unique_ptr<Tokenizer> load_bpe(const std::string& model, const std::string& origin);

// Returns `token`. Throws Error{kInput} if it is not in [0, vocab_size).
std::int64_t check_token(std::int64_t token, std::int64_t vocab_size);

// Tokenizers of published models: tokenizer.json, as the library `tokenizers` writes it. Byte-pair
// encoding by the content of a tokenizer.json; `origin` names it in messages. A text has the ids
// that `tokenizers` gives it without those that are set around a text (its
// add_special_tokens=False); it is neither cut nor padded. Bytes that are not UTF-8 become U+FFFD.
// Errors: kInput, naming the component or field that is not known here.
std::unique_ptr<Tokenizer> parse_tokenizer_json(const std::string& content,
                                                const std::string& origin);

}  // namespace tracestep
