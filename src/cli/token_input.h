// Tokens for training and evaluation: from a token file, or from text through a tokenizer; and the
// model that goes with them. Which tokenizer goes with weights is decided in weights/weights.h.
#pragma once

#include <memory>
#include <optional>

#include "cli/options.h"
#include "cli/output.h"
#include "tokens/token_file.h"
#include "tokens/tokenizer.h"
#include "weights/weights.h"

namespace tracestep::cli {

struct DataOptions {
  std::vector<std::filesystem::path> paths;
  std::string chat_template;  // empty: rows of messages are broken
  std::string end_of_text;    // empty: the usual one
  double broken_rows = 0.01;
};

struct TokenOptions {
  std::filesystem::path tokens;  // a token file, or
  std::optional<TokenDType> dtype;
  std::vector<std::filesystem::path> text;  // text files and folders, or
  DataOptions data;                         // documents
  std::string tokenizer;                    // bytes, bpe or a file; empty: none is asked for
  std::int64_t bpe_vocab = 4096;

  bool are_given() const { return !tokens.empty() || !text.empty() || !data.paths.empty(); }
  // The files and folders that are read.
  std::vector<NamedPath> inputs() const;
};

struct TokenInput {
  TokenSourcePtr tokens;
  std::unique_ptr<Tokenizer> tokenizer = nullptr;  // only for text
  std::string words = {};  // names the files read and left out, for a line where the run begins
};

void add_token_options(OptionSet& set, TokenOptions& tokens);
// Adds these options except --tokens.
void add_text_options(OptionSet& set, TokenOptions& tokens);
void add_init_option(OptionSet& set, std::filesystem::path& init);

// Where --init is left out and --model names a folder that has weights, these are `init`; a line
// says so. Where the folder has none, a training starts from --seed, which another line says, and
// what needs weights fails. --init none is an empty path: from --seed.
enum class Weightless { kStarts, kFails };
void take_weights_of_model(const ModelConfig& model, std::filesystem::path& init, Weightless then);

// The weights at `path`; nullopt where it is empty. Errors: as open_weights(), under `where` if
// nothing is there.
std::optional<Weights> weights_at(const std::filesystem::path& path,
                                  const std::string& where = "--init");

// The folder of the published model that weights began from; empty: none.
inline std::filesystem::path origin_of(const std::optional<Weights>& weights) {
  return weights ? weights->tensors.origin() : "";
}

// A pointer to weights that may not be given; nullptr: they are not.
inline const Weights* pointer_to(const std::optional<Weights>& weights) {
  return weights ? &*weights : nullptr;
}

// Error{kUsage} for a captured module whose inputs are not the tokens of a text.
void check_takes_text(const ModelConfig& model);

// `weights`: what the tokens are for; nullptr: new ones. Errors: kUsage when not exactly one of
// --tokens, --text and --data is given; kInput; as tokenizer_for_text().
TokenInput open_tokens(const TokenOptions& options, const Weights* weights);

// The tokenizer called `name`: "bytes", or what load_tokenizer() takes; nullptr where it is empty.
std::unique_ptr<Tokenizer> tokenizer_called(const std::string& name);

// Adds --data and what goes with it.
void add_document_options(OptionSet& set, DataOptions& data);

// The documents of `options.data`, as tokens of the tokenizer that a text gets. Errors: as
// read_documents() and tokenizer_for_text(); kUsage for an end of text that is not one token.
TokenInput read_document_tokens(const TokenOptions& options, const Weights* weights);

// Refuses what rows of this source cannot have: --pack without documents, and targets that do not
// count in a captured module, whose loss is its own. Then sets what the program depends on.
void take_rows(RunSpec& run, const TokenSource& tokens);

}  // namespace tracestep::cli
