// Byte-pair encoding over SentencePiece; what tokenizer.cpp needs of it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "train/tokenizer.h"

namespace tracestep {

// A tokenizer from the bytes of a model; `origin` is what messages call it. Errors: kInput.
std::unique_ptr<Tokenizer> load_bpe(const std::string& model, const std::string& origin);

// `token`, which must lie in the vocabulary. Errors: kInput.
std::int64_t check_token(std::int64_t token, std::int64_t vocab_size);

}  // namespace tracestep
