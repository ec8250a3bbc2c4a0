#include "cli/token_input.h"

#include <algorithm>

#include <fmt/ranges.h>

#include "base/error.h"
#include "base/log.h"
#include "captured/captured_model.h"
#include "spec/parse_words.h"
#include "tokens/text_source.h"
#include "weights/captured_tensors.h"
#include "weights/checkpoint_names.h"
#include "weights/family_files.h"
#include "weights/model_notes.h"
#include "weights/model_store.h"
#include "weights/peft_files.h"
#include "weights/weight_files.h"

namespace tracestep::cli {
namespace {

TokenInput read_text_tokens(const TokenOptions& options, const Weights* weights) {
  const TextSource source = read_text(options.text);
  std::unique_ptr<Tokenizer> asked;
  if (options.tokenizer == "bpe") {
    log_info("training a vocabulary of {} tokens on {} bytes of text", options.bpe_vocab,
             source.text.size());
    asked = train_bpe(source.text, options.bpe_vocab);
  } else {
    asked = tokenizer_called(options.tokenizer);
  }
  TokenInput out;
  out.tokenizer = tokenizer_for_text(weights, std::move(asked));
  out.tokens = memory_tokens(options.text.front().string(), out.tokenizer->encode(source.text));
  out.words = fmt::format("text: {} tokens of {}", out.tokens->size(), words_of(source));
  return out;
}

}  // namespace

void add_token_options(OptionSet& set, TokenOptions& tokens) {
  set.group("Tokens");
  set.path("--tokens", "FILE", tokens.tokens,
           "token file: headerless, .npy or with the llm.c header");
  set.takes_files({".bin", ".npy"});
  add_text_options(set, tokens);
  add_document_options(set, tokens.data);
}

void add_text_options(OptionSet& set, TokenOptions& tokens) {
  set.value("--token-dtype", "uint16|uint32", "element type of a headerless token file",
            [&tokens](const std::string& where, const std::string& text) {
              check_choice(where, text, words_of_all<TokenDType>());
              tokens.dtype = named<TokenDType>(text);
            });
  set.values("--text", "PATH...", 1, 1 << 20, "text files and folders, instead of --tokens",
             [&tokens](const std::string& where, const std::string& text) {
               if (text.empty()) fail_usage(where, "a path is empty");
               tokens.text.emplace_back(text);
             });
  set.takes_files({".txt", ".md"});
  set.text("--tokenizer", "NAME|FILE|DIR", tokens.tokenizer,
           "bytes, bpe (trained on the text), a saved tokenizer, a tokenizer.json, or the folder "
           "of a published model; when left out that of the weights, and bytes for new ones");
  set.integer("--bpe-vocab", tokens.bpe_vocab, {300, 1 << 20}, "tokens of a bpe vocabulary");
}

void add_init_option(OptionSet& set, std::filesystem::path& init) {
  set.path(
      "--init", "FILE|DIR", init,
      "the weights (safetensors, a published model in DIR, or the newest checkpoint in it), whose "
      "tokenizer is taken along; when left out those of --model DIR; none, or where there are "
      "none: from --seed");
  set.takes_files({".safetensors"});
}

std::unique_ptr<Tokenizer> tokenizer_called(const std::string& name) {
  if (name.empty()) return nullptr;
  return name == "bytes" ? byte_tokenizer() : load_tokenizer(name);
}

void take_weights_of_model(const ModelConfig& model, std::filesystem::path& init, Weightless then) {
  if (const auto& module = model.captured; module != nullptr) {
    if (init.empty() && !has_captured_weights(*module)) {
      log_info("weights: from --seed, as {} has no {}", module->folder.string(), kCapturedWeights);
    }
    if (init != "none") return;
    throw Error(ErrorCode::kUsage, "--init", "none, but the weights of a module are its folder's",
                "capture it on the meta device for weights from --seed");
  }
  if (init == "none") return init.clear();
  if (!init.empty() || model.file == nullptr || !model.file->is_folder) return;
  const std::filesystem::path& folder = model.file->path;
  require_no_doubts(*model.file, folder.string());
  if (has_family_weights(folder)) {
    init = folder;
    log_info("weights: those in {} (--init none starts from --seed)", folder.string());
  } else if (then == Weightless::kFails) {
    refuse_foreign_weights(folder);
    throw Error(ErrorCode::kUsage, "--model",
                fmt::format("{} has no {}", folder.string(), kFamilyWeights),
                "give --init FILE, or --init none for weights from --seed");
  } else {
    refuse_foreign_weights(folder);
    log_info("weights: from --seed, as {} has no {}", folder.string(), kFamilyWeights);
  }
}

std::optional<Weights> weights_at(const std::filesystem::path& path, const std::string& where) {
  if (path.empty()) return std::nullopt;
  std::error_code ignored;
  if (std::filesystem::exists(path, ignored)) return open_weights(path);
  const std::filesystem::path newest = path.parent_path() / kLatestCheckpoint;
  if (path.filename() == kBestCheckpoint && std::filesystem::exists(newest, ignored)) {
    fail_input(where, "{} has no best checkpoint, as --validate-every was not given; newest: {}",
               path.parent_path().string(), newest.string());
  }
  fail_input(where, "{} does not exist", path.string());
}

void check_takes_text(const ModelConfig& model) {
  if (model.captured == nullptr || model.captured->takes_text()) return;
  throw Error(
      ErrorCode::kUsage, "--text",
      fmt::format("the inputs of {} are not tokens [batch, context] and their targets alone",
                  model.name),
      "leave out --text and --tokens: its inputs are then those of its example");
}

std::vector<NamedPath> TokenOptions::inputs() const {
  std::vector<NamedPath> out{{"--tokens", tokens}};
  for (const std::filesystem::path& path : text) out.push_back({"--text", path});
  for (const std::filesystem::path& path : data.paths) out.push_back({"--data", path});
  return out;
}

TokenInput open_tokens(const TokenOptions& options, const Weights* weights) {
  const bool has_file = !options.tokens.empty(), has_data = !options.data.paths.empty();
  std::vector<const char*> given;
  if (has_file) given.push_back("--tokens");
  if (!options.text.empty()) given.push_back("--text");
  if (has_data) given.push_back("--data");
  if (given.size() != 1) {
    throw Error(
        ErrorCode::kUsage, given.empty() ? "--tokens" : given[1],
        given.empty() ? "there is nothing to read" : fmt::format("{} is given as well", given[0]),
        "give --tokens FILE, --text PATH..., or --data PATH...");
  }
  if (!has_file && options.dtype) {
    fail_usage("--token-dtype", "it goes with --tokens, not with --text or --data");
  }
  if (has_data) return read_document_tokens(options, weights);
  if (!has_file) return read_text_tokens(options, weights);
  if (!options.tokenizer.empty()) {
    fail_usage("--tokenizer", "it goes with --text or --data; --tokens are numbers already");
  }
  const TokenSourcePtr tokens = open_token_file(options.tokens, options.dtype);
  return {.tokens = tokens,
          .words = fmt::format("tokens: {} in {}", tokens->size(), tokens->name())};
}

}  // namespace tracestep::cli
