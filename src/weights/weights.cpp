#include "weights/weights.h"

#include <system_error>

#include "base/error.h"
#include "base/input_file.h"
#include "base/log.h"
#include "weights/family_files.h"
#include "weights/model_store.h"

namespace tracestep {
namespace fs = std::filesystem;
namespace {

std::string shown(const Tokenizer& tokenizer) {
  return fmt::format("{} of {} entries", tokenizer.name(), tokenizer.vocab_size());
}

// Returns the content of the weights' tokenizer file; nullopt: there is none.
std::optional<std::string> saved_file(const Weights& weights) {
  if (weights.tokenizer_file) {
    return weights.tokenizer_file->empty() ? std::nullopt : weights.tokenizer_file;
  }
  std::error_code ignored;
  if (!fs::exists(weights.tokenizer_path, ignored)) return std::nullopt;
  return read_text_file(weights.tokenizer_path, "tokenizer"_field, kMostTokenizerBytes);
}

// The hash of the tokenizer that the weights were trained with, where their metadata names it.
std::optional<std::string> hash_in(const Weights& weights) {
  const auto found = weights.tensors.metadata().find(kTokenizerHash);
  if (found == weights.tensors.metadata().end()) return std::nullopt;
  return found->second;
}

std::unique_ptr<Tokenizer> saved_tokenizer(const Weights& weights) {
  const auto file = saved_file(weights);
  if (!file) return nullptr;
  auto out = parse_tokenizer(*file, weights.tokenizer_path.string());
  if (hash_in(weights).value_or(out->hash()) == out->hash()) return out;
  throw Error(ErrorCode::kInput, "tokenizer"_field,
              fmt::format("{} is not the tokenizer that {} was trained with",
                          weights.tokenizer_path.string(), weights.path.string()),
              "put that one in its place, or remove it and give " TRACESTEP_OPTION(tokenizer));
}

// True if nothing that is known of the weights' tokenizer contradicts `asked`.
bool may_be_own(const Weights& weights, const Tokenizer& asked) {
  if (const auto hash = hash_in(weights)) return *hash == asked.hash();
  const auto file = saved_file(weights);
  if (!file) return true;
  try {  // compared as tokenizers, as a file of an earlier version has other bytes
    return parse_tokenizer(*file, weights.tokenizer_path.string())->hash() == asked.hash();
  } catch (const Error&) {  // a damaged one
    return false;
  }
}

void warn_of_another(const Weights& weights, const Tokenizer& asked) {
  if (may_be_own(weights, asked)) return;
  log_warn("[tokenizer] the one asked for ({}) is not the one that {} was trained with",
           shown(asked), weights.path.string());
}

}  // namespace

Weights open_weights(const fs::path& path) {
  if (is_model_folder(path)) {
    std::error_code ignored;
    const bool has_model =
        fs::exists(path / kTokenizerModel, ignored) && !fs::exists(path / kTokenizerJson, ignored);
    return {
        path, open_family_weights(path), path / (has_model ? kTokenizerModel : kTokenizerJson), {}};
  }
  if (const auto found = checkpoint_of_weights(path)) return weights_of(path, *found);
  // Names the option, so that the message of a missing file has it.
  return {path,
          SavedTensors(SafetensorsFile(InputFile(path, "init"_field))),
          tokenizer_beside(path),
          {}};
}

Weights weights_of(const fs::path& path, const Checkpoint& checkpoint) {
  return {path, checkpoint.model, checkpoint.folder / tokenizer_name(checkpoint.tokenizer),
          checkpoint.tokenizer};
}

fs::path tokenizer_beside(const fs::path& weights) {
  return weights.string() + ".tokenizer";
}

std::unique_ptr<Tokenizer> tokenizer_of(const Weights* weights, std::unique_ptr<Tokenizer> asked) {
  if (weights == nullptr) return asked;
  if (asked == nullptr) return saved_tokenizer(*weights);
  warn_of_another(*weights, *asked);
  return asked;
}

std::unique_ptr<Tokenizer> tokenizer_for_numbers(const Weights* weights) {
  try {
    return tokenizer_of(weights, nullptr);
  } catch (const Error& error) {
    if (!weights->tensors.is_published()) throw;
    log_warn("[tokenizer] the numbers have no text: {}", error.text());
    return nullptr;
  }
}

std::unique_ptr<Tokenizer> tokenizer_for_text(const Weights* weights,
                                              std::unique_ptr<Tokenizer> asked) {
  if (auto known = tokenizer_of(weights, std::move(asked))) return known;
  auto bytes = byte_tokenizer();
  if (weights == nullptr) return bytes;
  const auto hash = hash_in(*weights);
  if (hash == bytes->hash()) return bytes;
  // With one head the other sizes of a model are always valid.
  const std::int64_t vocab = config_of(weights->tensors, {.heads = 1}).vocab;
  if (!hash && vocab == bytes->vocab_size()) {
    log_info("[tokenizer] {} has none: taking bytes, as its vocabulary is {}",
             weights->path.string(), vocab);
    return bytes;
  }
  throw Error(ErrorCode::kUsage, "tokenizer"_field,
              fmt::format("there is no {}, and {}", weights->tokenizer_path.string(),
                          hash ? fmt::format("{} was not trained on bytes", weights->path.string())
                               : fmt::format("the vocabulary of {} is {}, that of bytes {}",
                                             weights->path.string(), vocab, bytes->vocab_size())),
              "give the tokenizer's file by " TRACESTEP_OPTION(tokenizer) ", or bytes");
}

void check_entries(const Tokenizer& tokenizer, std::int64_t vocab) {
  const std::int64_t entries = tokenizer.vocab_size();
  if (entries > vocab) {
    throw Error(ErrorCode::kUsage, "tokenizer"_field,
                fmt::format("it has {} entries, the model's vocabulary {}", entries, vocab),
                fmt::format("give that of the model, or new weights a vocabulary of {}", entries));
  }
  if (entries < vocab) {
    log_info("[tokenizer] it has {} entries, the model's vocabulary {}: the rest have no text",
             entries, vocab);
  }
}

}  // namespace tracestep
