#include "cli/token_input.h"

#include <array>

#include <fmt/ranges.h>

#include "base/error.h"
#include "base/input_file.h"
#include "base/suggest.h"
#include "base/utf8.h"
#include "tokens/documents.h"

namespace tracestep::cli {
namespace {

constexpr const char* kEndOfText = "--end-of-text";
constexpr std::uint64_t kMostConfigBytes = std::uint64_t{1} << 20;
// The usual ends of text, used if neither a flag nor a config.json names one: the first that is a
// single token. The last one is that of `bytes`, which no text contains.
constexpr std::array<std::string_view, 5> kUsualEnds = {"<|endoftext|>", "<|end_of_text|>", "</s>",
                                                        "<eos>", std::string_view("\0", 1)};

std::vector<std::string> names_of_templates() {
  std::vector<std::string> out;
  for (const ChatTemplate& form : chat_templates()) out.emplace_back(form.name);
  return out;
}

// The token that ends texts by the model's config.json; nullopt: none is known.
std::optional<std::int32_t> end_in_config(const Weights* weights) {
  if (weights == nullptr) return std::nullopt;
  for (const std::filesystem::path& folder :
       {weights->path, std::filesystem::path(weights->tensors.origin())}) {
    const std::filesystem::path file = folder / "config.json";
    std::error_code ignored;
    if (folder.empty() || !std::filesystem::is_regular_file(file, ignored)) continue;
    const Json config =
        Json::parse(read_text_file(file, "end_of_text"_field, kMostConfigBytes), file.string());
    const Json* id = config.find("eos_token_id");
    if (id != nullptr && id->is_array() && id->size() > 0) id = &id->items().front();
    if (id != nullptr && id->is_int()) return static_cast<std::int32_t>(id->as_int());
  }
  return std::nullopt;
}

std::vector<std::int32_t> end_of_text(const std::string& asked, const Tokenizer& tokenizer,
                                      const Weights* weights) {
  if (asked == "none") return {};
  if (!asked.empty()) {
    const std::vector<std::int32_t> ids = tokenizer.encode(asked);
    if (ids.size() == 1) return ids;
    fail_usage(kEndOfText, "\"{}\" is {} tokens of the tokenizer; one is needed, or none",
               escaped(asked), ids.size());
  }
  if (const auto id = end_in_config(weights); id && *id >= 0 && *id < tokenizer.vocab_size()) {
    return {*id};
  }
  for (const std::string_view text : kUsualEnds) {
    if (auto ids = tokenizer.encode(text); ids.size() == 1) return ids;
  }
  throw Error(ErrorCode::kUsage, kEndOfText, "it is not known which token ends a text",
              "give its text, or none");
}

// Reads the files of --data; errors name that flag.
TextSource read_data(std::span<const std::filesystem::path> paths) {
  try {
    return read_text(paths);
  } catch (const Error& error) {
    throw Error(error.code(), "data"_field, error.message(), error.hint());
  }
}

}  // namespace

void add_document_options(OptionSet& set, DataOptions& data) {
  set.values("--data", "PATH...", 1, 1 << 20,
             "documents, instead of --tokens and --text: files of JSON lines (text, messages, or "
             "prompt and completion), files of text, each a document, and folders of both",
             [&data](const std::string& where, const std::string& text) {
               if (text.empty()) fail_usage(where, "a path is empty");
               data.paths.emplace_back(text);
             });
  set.takes_files({".jsonl", ".txt", ".md"});
  set.value(
      "--chat-template", "NAME",
      fmt::format("the form of conversations in --data: {}", fmt::join(names_of_templates(), ", ")),
      [&data](const std::string& where, const std::string& text) {
        check_choice(where, text, names_of_templates());
        data.chat_template = text;
      });
  set.text("--end-of-text", "TOKEN", data.end_of_text,
           "the token after a document, as text, or none; when left out that of the model's "
           "config.json, else a usual one");
  set.real("--broken-rows", data.broken_rows, {.min = 0.0, .max = 1.0},
           "share of the rows of --data that may be broken, and are left out");
}

TokenInput read_document_tokens(const TokenOptions& options, const Weights* weights) {
  if (options.tokenizer == "bpe") {
    throw Error(ErrorCode::kUsage, "--tokenizer", "bpe is trained on a plain text, not on --data",
                "give a saved tokenizer, or bytes");
  }
  TokenInput out;
  out.tokenizer = tokenizer_for_text(weights, tokenizer_called(options.tokenizer));
  const DataOptions& data = options.data;
  const DocumentOptions how{.chat = find_chat_template(data.chat_template),
                            .end = end_of_text(data.end_of_text, *out.tokenizer, weights),
                            .most_broken = data.broken_rows};
  const TextSource source = read_data(data.paths);
  DocumentSet set = read_documents(source, how, *out.tokenizer);
  out.tokens = std::move(set.tokens);
  out.words =
      fmt::format("data: {} tokens of {}, in {}", out.tokens->size(), set.words, words_of(source));
  return out;
}

void take_rows(RunSpec& run, const TokenSource& tokens) {
  if (run.packed && tokens.documents().empty()) {
    throw Error(ErrorCode::kUsage, "--pack", "the tokens are not divided into documents",
                "give --data PATH...");
  }
  if (tokens.masks_targets() && run.model.captured != nullptr) {
    fail_usage("--data", "{} has a loss of its own, in which all targets count", run.model.name);
  }
  run.masks_targets = tokens.masks_targets();
}

}  // namespace tracestep::cli
