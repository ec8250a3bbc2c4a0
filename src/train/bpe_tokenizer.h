// Byte-pair encoding over SentencePiece; the interface that tokenizer.cpp uses.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "train/tokenizer.h"

namespace tracestep {

// A tokenizer from the bytes of a model file; `origin` names it in messages. Errors: kInput.
std::unique_ptr<Tokenizer> load_bpe(const std::string& model, const std::string& origin);

// Returns `token`. Errors: kInput when it is not in [0, vocab_size).
std::int64_t check_token(std::int64_t token, std::int64_t vocab_size);

}  // namespace tracestep
