#include "cli/chosen_forms.h"

#include <algorithm>
#include <array>
#include <filesystem>

#include "base/error.h"
#include "base/log.h"
#include "base/shell_words.h"
#include "base/utf8.h"
#include "cli/options.h"
#include "passes/pipeline.h"

namespace tracestep::cli {
namespace {

constexpr std::array kOfThisCall = {"--checkpoint", "--resume",    "--overwrite", "--change",
                                    "--init",       "--tokenizer", "--bpe-vocab", "--recipe"};
constexpr std::array kGroupsOfThisCall = {kModelGroup, kArchitectureGroup, "Output"};
// Flags that name the tokens: if one of them is given, the checkpoint's others are not taken.
constexpr std::array kTokens = {"--tokens", "--token-dtype", "--text", "--data"};
// The most bytes of kept options, far below the limit of a description (checkpoint_format.cpp).
constexpr std::size_t kMostOptionBytes = std::size_t{1} << 20;

bool is_kept(const Option& option) {
  return std::ranges::find(kOfThisCall, option.flag) == kOfThisCall.end() &&
         std::ranges::find(kGroupsOfThisCall, option.group) == kGroupsOfThisCall.end();
}

// Makes paths absolute, so that they hold wherever the run is resumed.
std::vector<std::string> texts_to_keep(const Option& option, std::vector<std::string> texts) {
  constexpr std::array kPaths = {"FILE", "DIR", "PATH..."};
  if (std::ranges::find(kPaths, option.value_name) == kPaths.end()) return texts;
  for (std::string& text : texts) {
    text = std::filesystem::absolute(text).lexically_normal().string();
  }
  return texts;
}

std::string name_of(const std::string& flag) {
  return flag.substr(2);
}

bool is_given(const GivenOptions& given, const std::string& flag) {
  if (std::ranges::find(kTokens, flag) == kTokens.end()) return given.contains(flag);
  return std::ranges::any_of(kTokens, [&](const char* other) { return given.contains(other); });
}

std::vector<std::string> texts_of(const Json& values) {
  std::vector<std::string> out;
  for (const Json& value : values.items()) out.push_back(value.as_string());
  return out;
}

}  // namespace

Json kept_options(const OptionSet& set, const GivenOptions& given) {
  Json::Object out;
  for (const Option& option : set.options()) {
    const auto found = given.find(option.flag);
    if (found == given.end() || !is_kept(option)) continue;
    const std::vector<std::string> texts = texts_to_keep(option, found->second);
    // A description is text; a path need not be.
    if (!std::ranges::all_of(texts, is_utf8)) continue;
    out.emplace_back(name_of(option.flag), Json::Array(texts.begin(), texts.end()));
  }
  Json kept(std::move(out));
  return kept.dump().size() <= kMostOptionBytes ? kept : Json::object();
}

void take_kept_options(const OptionSet& set, GivenOptions given, const Checkpoint& checkpoint) {
  const Json* kept = checkpoint.meta.find("arguments");
  if (kept == nullptr) return;
  std::vector<std::string> taken;
  for (const auto& [name, values] : kept->members()) {
    const std::string flag = "--" + name;
    if (is_given(given, flag)) continue;
    const auto option = std::ranges::find(set.options(), flag, &Option::flag);
    if (option == set.options().end() || !is_kept(*option)) {
      log_warn("[resume] {} keeps an option that this version does not take: {}",
               checkpoint.folder.string(), name);
      continue;
    }
    taken.push_back(flag);
    for (const std::string& text : texts_of(values)) {
      option->read(flag, text);
      if (!option->value_name.empty()) taken.push_back(text);
    }
  }
  if (taken.empty()) return;
  log_info("[resume] from {}: {}", checkpoint.folder.string(), shell_quoted(taken));
}

Forms forms_of(const Json& meta) {
  const auto holds = [&](const char* entry, std::string_view text) {
    const Json* value = meta.find(entry);
    return value == nullptr || *value == Json(std::string(text));
  };
  return {holds("compile_passes", "none") ? ExecutorKind::kEager : ExecutorKind::kCompiled,
          holds("attention", name_of(AttentionForm::kNaive)) ? AttentionForm::kNaive
                                                             : AttentionForm::kFlash};
}

}  // namespace tracestep::cli
