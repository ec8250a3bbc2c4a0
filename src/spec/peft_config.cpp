#include "spec/peft_config.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "base/error.h"
#include "base/input_file.h"
#include "base/utf8.h"
#include "ir/layer_path.h"

namespace tracestep {
namespace {

constexpr std::uint64_t kMostPeftBytes = std::uint64_t{1} << 20;
constexpr std::int64_t kMostPeftRank = 1 << 16;

// A field that changes what is computed unless it is missing, null, false, empty or `usual`.
struct PlainField {
  const char *field, *usual;
};
constexpr PlainField kPlainFields[] = {{"bias", "none"},
                                       {"use_dora", ""},
                                       {"lora_bias", ""},
                                       {"rank_pattern", ""},
                                       {"alpha_pattern", ""},
                                       {"layer_replication", ""},
                                       {"layers_to_transform", ""},
                                       {"layers_pattern", ""},
                                       {"exclude_modules", ""},
                                       {"target_parameters", ""},
                                       {"trainable_token_indices", ""},
                                       {"use_qalora", ""},
                                       {"use_bdlora", ""},
                                       {"alora_invocation_tokens", ""}};

bool is_plain_value(const Json& value, const std::string& usual) {
  if (value.is_null() || (value.is_bool() && !value.as_bool())) return true;
  if (value.is_string()) return value.as_string() == usual;
  if (value.is_array()) return value.items().empty();
  return value.is_object() && value.members().empty();
}

double number_in(const Json& json, const char* field, double least, double most,
                 const std::string& where) {
  const Json* value = json.find(field);
  const double out = value != nullptr && value->is_number()
                         ? value->as_double()
                         : std::numeric_limits<double>::quiet_NaN();
  if (out >= least && out <= most) return out;
  fail_input(where, "{} is {}; a number from {:g} to {:g} is expected", field,
             value == nullptr ? "missing" : printable(value->dump()), least, most);
}

// Returns the target here for `module` of PEFT, which stands for all modules whose paths end with
// it. Numbers of layers and last names are as in the family: "layers.3.*.down_proj" for
// "model.layers.3.mlp.down_proj", "down_proj" for "mlp.down_proj".
std::string target_of(const std::string& module) {
  const std::string_view layer = layer_of(module),
                         name = std::string_view(module).substr(module.rfind('.') + 1);
  if (layer.empty() || layer.size() == module.size()) return std::string(name);
  return fmt::format("{}.{}.*.{}", kLayersPath, layer.substr(layer.rfind('.') + 1), name);
}

std::vector<std::string> targets_in(const Json& json, const std::string& where) {
  const Json* modules = json.find("target_modules");
  if (modules != nullptr && modules->is_string() && modules->as_string() == "all-linear") {
    return {"all"};
  }
  std::vector<std::string> out;
  if (modules != nullptr && modules->is_array()) {
    for (const Json& module : modules->items()) {
      if (module.is_string()) out.push_back(target_of(module.as_string()));
    }
  }
  if (out.empty()) {
    fail_input(where, "target_modules is {}; a list of names is expected",
               modules == nullptr ? "missing" : printable(modules->dump()));
  }
  std::ranges::sort(out);
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

// The names of modules in files of model families, each with the name of its part in this project.
constexpr std::pair<std::string_view, std::string_view> kWholeParts[] = {
    {"embed_tokens", "token_embeddings"},
    {"wte", "token_embeddings"},
    {"embed_in", "token_embeddings"},
    {"lm_head", "lm_head"},
    {"embed_out", "lm_head"},
    {"norm", "ln_final"}};

std::vector<std::string> whole_in(const Json& json, const std::string& where) {
  std::vector<std::string> out;
  const Json* modules = json.find("modules_to_save");
  if (modules == nullptr || modules->is_null()) return out;
  if (!modules->is_array()) fail_input(where, "modules_to_save is no list");
  for (const Json& module : modules->items()) {
    const std::string name = module.is_string() ? module.as_string() : module.dump();
    const auto known =
        std::ranges::find(kWholeParts, std::string_view(name).substr(name.rfind('.') + 1),
                          [](const auto& p) { return p.first; });
    if (known == std::end(kWholeParts)) {
      fail_input(where, "modules_to_save has {}, which is none of embed_tokens, lm_head, norm",
                 printable(name));
    }
    out.emplace_back(known->second);
  }
  // Keeps each part once: two names may stand for one part.
  std::ranges::sort(out);
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

}  // namespace

Adapters read_peft_config(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / kPeftConfig;
  const std::string where = path.string();
  const Json json = Json::parse(read_text_file(path, "lora"_field, kMostPeftBytes), where);
  const Json* type = json.is_object() ? json.find("peft_type") : nullptr;
  if (type == nullptr || !type->is_string() || type->as_string() != "LORA") {
    fail_input(where, "peft_type is {}; of adapters, LORA alone is known",
               type == nullptr ? "missing" : printable(type->dump()));
  }
  for (const PlainField& plain : kPlainFields) {
    const Json* value = json.find(plain.field);
    if (value == nullptr || is_plain_value(*value, plain.usual)) continue;
    fail_input(where, "{} is {}, and adapters with it are computed otherwise", plain.field,
               printable(value->dump()));
  }
  const double rank = number_in(json, "r", 1, kMostPeftRank, where);
  if (rank != std::floor(rank)) fail_input(where, "r is {:g}, no whole number", rank);
  Adapters out{.rank = static_cast<std::int64_t>(rank), .from = folder.string()};
  out.alpha = number_in(json, "lora_alpha", 0, 1e6, where);
  const Json* dropout = json.find("lora_dropout");
  if (dropout != nullptr) out.dropout = number_in(json, "lora_dropout", 0, 0.99, where);
  const Json* scale = json.find("use_rslora");
  out.is_rank_stabilised = scale != nullptr && scale->is_bool() && scale->as_bool();
  out.targets = targets_in(json, where);
  out.whole = whole_in(json, where);
  return out;
}

bool keeps_tied(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / kPeftConfig;
  const Json json = Json::parse(read_text_file(path, "lora"_field, kMostPeftBytes), path.string());
  const Json* value = json.find(kKeepsTied);
  return value != nullptr && *value == Json(true);
}

Json peft_config(const Adapters& adapters, const std::vector<std::string>& modules,
                 const std::vector<std::string>& whole, bool is_tied, const std::string& base) {
  Json out = Json::object();
  out["base_model_name_or_path"] = base.empty() ? Json() : Json(base);
  out["bias"] = "none";
  if (is_tied) out[kKeepsTied] = true;
  out["fan_in_fan_out"] = false;
  out["inference_mode"] = true;
  out["lora_alpha"] = adapters.alpha;
  out["lora_dropout"] = adapters.dropout;
  out["modules_to_save"] = whole.empty() ? Json() : Json(Json::Array(whole.begin(), whole.end()));
  out["peft_type"] = "LORA";
  out["r"] = adapters.rank;
  out["target_modules"] = Json(Json::Array(modules.begin(), modules.end()));
  out["task_type"] = "CAUSAL_LM";
  out["use_rslora"] = adapters.is_rank_stabilised;
  return out;
}

}  // namespace tracestep
