// Opens tokens for training and evaluation, from a token file or from text through a tokenizer, and
// the weights that go with them. weights/weights.h decides which tokenizer goes with weights.
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
  // The template for conversations; empty: rows of messages are refused.
  std::string chat_template;
  std::string end_of_text;  // The text that ends a document; empty: the tokenizer's usual one.
  double broken_rows = 0.01;
};

struct TokenOptions {
  std::filesystem::path tokens;  // A token file (--tokens).
  std::optional<TokenDType> dtype;
  std::vector<std::filesystem::path> text;  // Text files and folders (--text).
  DataOptions data;                         // documents
  std::string tokenizer;                    // "bytes", "bpe" or a file; empty: none is asked for.
  std::int64_t bpe_vocab = 4096;

  bool are_given() const { return !tokens.empty() || !text.empty() || !data.paths.empty(); }
  // The files and folders that are read.
  std::vector<NamedPath> inputs() const;
};

struct TokenInput {
  TokenSourcePtr tokens;
  std::unique_ptr<Tokenizer> tokenizer = nullptr;  // only for text
  // Names the files that were read and left out, for a line at the begin of the run.
  std::string words = {};
};

void add_token_options(OptionSet& set, TokenOptions& tokens);
// Adds the options of TokenOptions except --tokens.
void add_text_options(OptionSet& set, TokenOptions& tokens);
void add_init_option(OptionSet& set, std::filesystem::path& init);

// If --init is not given and --model names a folder with weights, sets `init` to these, and a line
// says so. If the folder has none, `weightless` decides: training starts from --seed, which a line
// says, and a command that needs weights fails. --init none gives an empty path and starts from
// --seed.
enum class Weightless { kStarts, kFails };
void take_weights_of_model(const ModelConfig& model, std::filesystem::path& init, Weightless then);

// The weights at `path`; nullopt where it is empty. Errors: as open_weights(), under `where` if
// nothing is there.
std::optional<Weights> weights_at(const std::filesystem::path& path,
                                  const std::string& where = "--init");

// The folder of the published model from which the weights were trained; empty: none.
inline std::filesystem::path origin_of(const std::optional<Weights>& weights) {
  return weights ? weights->tensors.origin() : "";
}

// A pointer to optional weights; nullptr if there are none.
inline const Weights* pointer_to(const std::optional<Weights>& weights) {
  return weights ? &*weights : nullptr;
}

// Throws Error{kUsage} for a captured module whose inputs are not tokens of a text.
void check_takes_text(const ModelConfig& model);

// Opens the tokens. `weights`: those that the tokens are for; nullptr: new weights. Throws
// Error{kUsage} unless exactly one of --tokens, --text and --data is given, Error{kInput}, and what
// tokenizer_for_text() throws.
TokenInput open_tokens(const TokenOptions& options, const Weights* weights);

// The tokenizer with this name: "bytes", or what load_tokenizer() accepts; nullptr for an empty
// name.
std::unique_ptr<Tokenizer> tokenizer_called(const std::string& name);

// Adds --data and the options that belong to it.
void add_document_options(OptionSet& set, DataOptions& data);

// Reads the documents of `options.data` as tokens of the tokenizer that a text would get. Throws as
// read_documents() and tokenizer_for_text(), and Error{kUsage} if the end of text is not a single
// token.
TokenInput read_document_tokens(const TokenOptions& options, const Weights* weights);

// Sets what the program depends on in `run` from the source of tokens. Throws Error{kUsage} for
// what the source or model does not allow: --pack without documents, and targets that do not count
// if a captured module computes the loss itself.
void take_rows(RunSpec& run, const TokenSource& tokens);

}  // namespace tracestep::cli
