// The data set of a planned training: how many tokens its epochs have.
#include <algorithm>
#include <cmath>
#include <filesystem>

#include "base/error.h"
#include "base/units.h"
#include "cli/fit_plan.h"
#include "nn/families.h"
#include "tokens/text_source.h"

namespace tracestep::cli {
namespace {

constexpr std::int64_t kMostTokens = std::int64_t{1} << 60;
constexpr double kUsualBytes = 4;  // of a token, in English text
constexpr const char* kTokenizerFile = "tokenizer.json";

struct CountedTokens {
  std::int64_t count = 0;
  std::string how = {};  // "by the tokenizer in FOLDER"
};

CountedTokens counted_text(const ModelConfig& model, TokenOptions data) {
  std::error_code error;
  const std::filesystem::path folder =
      model.file != nullptr ? model.file->path : std::filesystem::path(model.source);
  if (data.tokenizer.empty() && std::filesystem::exists(folder / kTokenizerFile, error)) {
    data.tokenizer = folder.string();
  }
  const bool is_preset = std::ranges::count(model_presets(), model.name, &ModelConfig::name) > 0;
  // A model of one's own begins with bytes.
  const bool is_of_bytes = is_preset || (model.name == ModelConfig().name && model.source.empty());
  if (!data.tokenizer.empty() || is_of_bytes) {
    const std::int64_t count = open_tokens(data, nullptr).tokens->size();
    return {count, data.tokenizer.empty() ? "one for each byte (--tokenizer)"
                                          : "by the tokenizer " + data.tokenizer};
  }
  const double bytes = static_cast<double>(read_text(data.text).text.size());
  return {std::max<std::int64_t>(1, std::llround(bytes / kUsualBytes)),
          fmt::format("one for {:g} bytes, as in English, for the tokenizer of {} is not here "
                      "(--tokenizer DIR)",
                      kUsualBytes, model.name)};
}

}  // namespace

void add_data_options(OptionSet& set, PlanOptions& o) {
  set.value("--tokens", "N|FILE",
            "tokens to train on, as 1T, or a file of them: says how many days that takes",
            [&o](const std::string& where, const std::string& text) {
              std::error_code error;
              if (std::filesystem::is_regular_file(text, error)) {
                o.data.tokens = text;
              } else {
                o.tokens = parse_count(where, text, 1, kMostTokens, Thousand::kDecimal);
              }
            });
  add_text_options(set, o.data);
  set.real("--epochs", o.epochs, {.min = 0.001},
           "times that the training reads --text or the file of --tokens; when left out once");
}

const char* flag_of_training(const PlanOptions& o) {
  if (!o.data.text.empty()) return "--text";
  return o.has_tokens() ? "--tokens" : "--days";
}

void check_data(const PlanOptions& o) {
  if (o.epochs > 0 && !o.has_data()) {
    throw Error(ErrorCode::kUsage, "--epochs", "an epoch is once through a data set",
                "give --text PATH... or --tokens FILE");
  }
  if (o.tokens > 0 && o.has_data()) {
    throw Error(ErrorCode::kUsage, "--text", "how many tokens there are is given by --tokens",
                "give one of the two");
  }
}

std::string count_tokens(const ModelConfig& model, PlanOptions& o) {
  if (!o.has_data()) return {};
  const CountedTokens found =
      o.data.text.empty()
          ? CountedTokens{open_tokens(o.data, nullptr).tokens->size(), "as the file has them"}
          : counted_text(model, o.data);
  const double epochs = o.epochs > 0 ? o.epochs : 1;
  o.tokens = std::max<std::int64_t>(1, std::llround(epochs * static_cast<double>(found.count)));
  return fmt::format("tokens: {:g} epoch{} of {}, counted {}", epochs, epochs == 1 ? "" : "s",
                     format_count(static_cast<double>(found.count)), found.how);
}

}  // namespace tracestep::cli
