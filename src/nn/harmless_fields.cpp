#include "nn/harmless_fields.h"

#include <algorithm>
#include <string>

namespace tracestep {
namespace {

constexpr std::string_view kOfBaseClasses[] = {
#include "nn/harmless_fields.inc"
};

// Further fields to ignore: of the config classes of known families, and of tools for models.
constexpr std::string_view kOthers[] = {"initializer_range",
                                        "cls_token_id",
                                        "pretraining_tp",
                                        "summary_activation",
                                        "summary_first_dropout",
                                        "summary_proj_to_labels",
                                        "summary_type",
                                        "summary_use_proj",
                                        "classifier_dropout",
                                        "predict_special_tokens",
                                        "reorder_and_upcast_attn",
                                        "output_past",
                                        "n_ctx",
                                        "is_llama_config",
                                        "transformers.js_config",
                                        "_attn_implementation_autoset",
                                        "_attn_implementation_internal",
                                        "_flash_attn_2_enabled",
                                        "use_flash_attn",
                                        "use_flash_attention",
                                        "use_flash_attention_2",
                                        "model_max_length",
                                        "tokenizer_model_max_length",
                                        "tokenizer_padding_side",
                                        "neftune_noise_alpha",
                                        "num_logits_to_keep",
                                        "loss_type",
                                        "use_fused_rms_norm",
                                        "use_fused_cross_entropy"};
constexpr std::string_view kPrefixesOfTools[] = {"unsloth_"};

// Words for parts that every model here has: `false` in a field so named leaves the part out.
constexpr std::string_view kUsualParts[] = {
    "causal",  "rope", "rotary",  "norm",    "norms",  "rms",    "layernorm", "scale",
    "scaling", "gate", "gated",   "glu",     "swiglu", "mlp",    "residual",  "softmax",
    "no",      "not",  "without", "disable", "skip",   "exclude"};
// Names with one of the words above that still stand for parts which only other families have.
constexpr std::string_view kPartsOfOthers[] = {"use_qk_norm", "qk_norm", "qk_layernorm",
                                               "mlp_bias"};

bool is_in(const auto& names, std::string_view name) {
  return std::ranges::find(names, name) != std::end(names);
}

// True if `false` in a field of this name changes nothing, as for "use_mrope", but not "causal".
bool is_off_by_false(std::string_view name) {
  if (is_in(kPartsOfOthers, name)) return true;
  for (std::size_t start = 0; start <= name.size();) {
    const std::size_t end = std::min(name.find_first_of("_.-", start), name.size());
    if (is_in(kUsualParts, name.substr(start, end - start))) return false;
    start = end + 1;
  }
  return true;
}

bool are_all_full(const Json& types) {
  return types.is_array() && std::ranges::all_of(types.items(), [](const Json& type) {
           return type == Json("full_attention");
         });
}

}  // namespace

bool is_harmless_field(std::string_view name, const Json& value, const Json& all) {
  if (value.is_null() || is_in(kOfBaseClasses, name) || is_in(kOthers, name)) return true;
  if (std::ranges::any_of(kPrefixesOfTools,
                          [&](auto prefix) { return name.starts_with(prefix); })) {
    return true;
  }
  if (name == "layer_types") return are_all_full(value);
  if (name == "n_special") return value == Json(0);  // tokens beside the vocabulary
  if (name == "max_window_layers" || name == "sliding_window") {
    const Json* is_on = all.find("use_sliding_window");
    if (is_on != nullptr && *is_on == Json(false)) return true;
    return name == "max_window_layers" && is_on == nullptr;
  }
  return value == Json(false) && is_off_by_false(name);
}

}  // namespace tracestep
