// Names under which published models are stored, and names of models that cannot be read.
#include <algorithm>
#include <map>
#include <string>

#include "nn/families.h"

namespace tracestep {
namespace {

// A known model, and another name, without owner, under which its architecture is stored.
struct Stored {
  std::string_view known, other;
};
constexpr Stored kStored[] = {{"llama-2-7b", "Llama-2-7b-hf"},
                              {"llama-2-7b", "Llama-2-7b-chat-hf"},
                              {"llama-2-7b", "Llama-2-7b-chat"},
                              {"llama-2-13b", "Llama-2-13b-hf"},
                              {"llama-2-13b", "Llama-2-13b-chat-hf"},
                              {"llama-2-13b", "Llama-2-13b-chat"},
                              {"llama-2-70b", "Llama-2-70b-hf"},
                              {"llama-2-70b", "Llama-2-70b-chat-hf"},
                              {"llama-2-70b", "Llama-2-70b-chat"},
                              {"llama-3-8b", "Meta-Llama-3-8B"},
                              {"llama-3-70b", "Meta-Llama-3-70B"},
                              {"llama-3.1-8b", "Meta-Llama-3.1-8B"},
                              {"llama-3.1-70b", "Meta-Llama-3.1-70B"},
                              {"llama-3.1-405b", "Meta-Llama-3.1-405B"},
                              {"mistral-7b-v0.1", "Mistral-7B-Instruct-v0.1"},
                              {"mistral-7b-v0.3", "Mistral-7B-Instruct-v0.3"},
                              {"olmo-2-1b", "OLMo-2-0425-1B"},
                              {"olmo-2-7b", "OLMo-2-1124-7B"},
                              {"olmo-2-13b", "OLMo-2-1124-13B"},
                              {"olmo-2-32b", "OLMo-2-0325-32B"},
                              {"stablelm-3b", "stablelm-3b-4e1t"},
                              {"stablelm-3b", "stablelm-zephyr-3b"},
                              {"stablelm-2-1.6b", "stablelm-2-1_6b"},
                              {"stablelm-2-1.6b", "stablelm-2-1_6b-chat"},
                              {"stablelm-2-1.6b", "stablelm-2-zephyr-1_6b"},
                              {"phi-3-mini", "Phi-3-mini-4k-instruct"},
                              {"phi-3-medium", "Phi-3-medium-4k-instruct"},
                              {"pythia-70m", "pythia-70m-deduped"},
                              {"pythia-160m", "pythia-160m-deduped"},
                              {"pythia-410m", "pythia-410m-deduped"},
                              {"pythia-1b", "pythia-1b-deduped"},
                              {"pythia-1.4b", "pythia-1.4b-deduped"},
                              {"pythia-2.8b", "pythia-2.8b-deduped"},
                              {"pythia-6.9b", "pythia-6.9b-deduped"},
                              {"pythia-12b", "pythia-12b-deduped"}};

// An ending by which names of a family tell tuned models from plain ones, such as "-instruct".
struct Ending {
  std::string_view family, ending;
};
constexpr Ending kEndings[] = {
    {"llama", "-instruct"}, {"qwen2", "-instruct"}, {"qwen3", "-base"},
    {"gemma2", "-it"},      {"gemma3_text", "-it"}, {"gemma3_text", "-pt"},
    {"olmo2", "-instruct"}, {"olmo2", "-sft"},      {"olmo2", "-dpo"}};

// How names of well-known models of a type that is not read begin, and that type.
struct Foreign {
  std::string_view beginning, type;
};
constexpr Foreign kForeign[] = {{"mixtral", "mixtral (a mixture of experts)"},
                                {"deepseek-v", "deepseek (a mixture of experts)"},
                                {"deepseek-moe", "deepseek (a mixture of experts)"},
                                {"llama-4", "llama4 (a mixture of experts)"},
                                {"gpt-oss", "gpt_oss (a mixture of experts)"},
                                {"olmoe", "olmoe (a mixture of experts)"},
                                {"qwen3-30b", "qwen3_moe (a mixture of experts)"},
                                {"qwen3-235b", "qwen3_moe (a mixture of experts)"},
                                {"qwen3-next", "qwen3_next"},
                                {"qwen-", "qwen"},
                                {"gemma-2b", "gemma"},
                                {"gemma-7b", "gemma"},
                                {"gemma-3n", "gemma3n"},
                                {"gemma-4", "gemma4"},
                                {"olmo-1b", "olmo"},
                                {"olmo-7b", "olmo"},
                                {"olmo-3", "olmo3"},
                                {"phi-1", "phi"},
                                {"phi-2", "phi"},
                                {"phi-3.5-moe", "phimoe (a mixture of experts)"},
                                {"gpt-neo-1", "gpt_neo"},
                                {"gpt-neo-2", "gpt_neo"},
                                {"gpt-j", "gptj"},
                                {"smollm3", "smollm3"},
                                {"falcon", "falcon"},
                                {"bloom", "bloom"},
                                {"opt-", "opt"},
                                {"mamba", "mamba"},
                                {"stablelm-2-12b", "stablelm"},
                                {"t5", "t5"},
                                {"bert", "bert"}};

// Returns the name in lower case, without its owner; paths ("./gpt2", "/gpt2") stay whole.
std::string short_name(std::string_view name) {
  const std::size_t slash = name.find('/');
  const bool has_owner = slash != name.npos && slash > 0 && name[0] != '.' && name[0] != '~';
  std::string out(has_owner ? name.substr(slash + 1) : name);
  std::ranges::transform(out, out.begin(), [](unsigned char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : static_cast<char>(c);
  });
  return out;
}

const KnownModel* known_as(std::string_view name) {
  const auto& all = known_models();
  const auto found = std::ranges::find(
      all, name, [](const KnownModel& m) { return std::string_view(m.config.name); });
  if (found != all.end()) return &*found;
  for (const Stored& stored : kStored) {
    if (short_name(stored.other) == name) return known_as(stored.known);
  }
  return nullptr;
}

}  // namespace

const KnownModel* stored_as(std::string_view name) {
  const std::string wanted = short_name(name);
  if (const KnownModel* known = known_as(wanted)) return known;
  for (const Ending& row : kEndings) {
    if (!wanted.ends_with(row.ending)) continue;
    const KnownModel* known = known_as(wanted.substr(0, wanted.size() - row.ending.size()));
    if (known != nullptr && known->family == row.family) return known;
  }
  return nullptr;
}

std::string_view type_that_is_not_read(std::string_view name) {
  const std::string wanted = short_name(name);
  for (const Foreign& row : kForeign) {
    if (wanted.starts_with(row.beginning)) return row.type;
  }
  return {};
}

std::shared_ptr<const ReadModel> known_model_at(const std::filesystem::path& path) {
  std::error_code none;
  const bool is_folder = std::filesystem::is_directory(path, none);
  const auto written =
      std::filesystem::last_write_time(is_folder ? path / "config.json" : path, none);
  static std::map<std::pair<std::string, std::int64_t>, std::shared_ptr<const ReadModel>> all;
  const std::pair key(path.string(), std::int64_t{written.time_since_epoch().count()});
  std::shared_ptr<const ReadModel>& out = all[key];
  if (out == nullptr) out = std::make_shared<const ReadModel>(read_model(path));
  return out;
}

}  // namespace tracestep
