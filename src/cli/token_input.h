// Tokens for training and evaluation: from a token file, or from text through a tokenizer; and the
// model that goes with them.
#pragma once

#include <memory>
#include <optional>

#include "cli/options.h"
#include "train/token_file.h"
#include "train/tokenizer.h"

namespace tracestep::cli {

struct TokenOptions {
  std::filesystem::path tokens;  // a token file, or
  std::optional<TokenDType> dtype;
  std::vector<std::filesystem::path> text;  // text files and folders
  std::string tokenizer;                    // bytes, bpe or a file; empty: bytes
  std::int64_t bpe_vocab = 4096;
};

struct TokenInput {
  TokenSourcePtr tokens;
  std::unique_ptr<Tokenizer> tokenizer;  // only for text
};

void add_token_options(OptionSet& set, TokenOptions& tokens);

// Errors: kUsage when not exactly one of --tokens and --text is given; kInput.
TokenInput open_tokens(const TokenOptions& options);

// The tokenizer called `name`: "bytes", or a file written by Tokenizer::save().
std::unique_ptr<Tokenizer> tokenizer_called(const std::string& name);

// The model for these tokens. Its sizes come from the flags, else from the weights `init` (if any),
// else from the base of `grid`; its vocabulary from --vocab, the weights or the tokenizer.
// Errors: kUsage when they disagree, kInput when `init` is no model.
ModelConfig model_for(const RunGrid& grid, const std::filesystem::path& init,
                      const Tokenizer* tokenizer);

}  // namespace tracestep::cli
