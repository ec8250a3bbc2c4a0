#include "nn/family_names.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <span>

#include "base/error.h"
#include "nn/scopes.h"

namespace tracestep {
namespace {

// How several tensors of a model here form one tensor in the family's files.
enum class Joined : std::uint8_t { kNot, kOneAfterAnother, kByHead };

// A module's name here and in a family's files, without its layer's prefix and without ".weight".
struct Rule {
  std::string_view ours, theirs;
  Joined joined = Joined::kNot;
  bool is_transposed = false;
};

struct Naming {
  std::string_view stem, layers;
  std::span<const Rule> own, others = {};  // the first that has a name counts
};

constexpr Rule kLlama[] = {{"token_embeddings", "model.embed_tokens"},
                           {"ln_final", "model.norm"},
                           {"lm_head", "lm_head"},
                           {"ln1", "input_layernorm"},
                           {"ln1_after", "post_attention_layernorm"},
                           {"ln2", "post_attention_layernorm"},
                           {"ln2_after", "post_feedforward_layernorm"},
                           {"attn.q_proj", "self_attn.q_proj"},
                           {"attn.k_proj", "self_attn.k_proj"},
                           {"attn.v_proj", "self_attn.v_proj"},
                           {"attn.q_norm", "self_attn.q_norm"},
                           {"attn.k_norm", "self_attn.k_norm"},
                           {"attn.output_proj", "self_attn.o_proj"},
                           {"ffn.w1", "mlp.gate_proj"},
                           {"ffn.w3", "mlp.up_proj"},
                           {"ffn.w2", "mlp.down_proj"}};
constexpr Rule kGemma[] = {{"ln2", "pre_feedforward_layernorm"}};
constexpr Rule kStarcoder2[] = {{"ffn.w1", "mlp.c_fc"}, {"ffn.w2", "mlp.c_proj"}};
constexpr Rule kPhi3[] = {{"attn.q_proj", "self_attn.qkv_proj", Joined::kOneAfterAnother},
                          {"attn.k_proj", "self_attn.qkv_proj", Joined::kOneAfterAnother},
                          {"attn.v_proj", "self_attn.qkv_proj", Joined::kOneAfterAnother},
                          {"ffn.w1", "mlp.gate_up_proj", Joined::kOneAfterAnother},
                          {"ffn.w3", "mlp.gate_up_proj", Joined::kOneAfterAnother}};
constexpr Rule kGpt2[] = {{"token_embeddings", "transformer.wte"},
                          {"position_embeddings", "transformer.wpe"},
                          {"ln_final", "transformer.ln_f"},
                          {"lm_head", "lm_head"},
                          {"ln1", "ln_1"},
                          {"ln2", "ln_2"},
                          {"attn.q_proj", "attn.c_attn", Joined::kOneAfterAnother, true},
                          {"attn.k_proj", "attn.c_attn", Joined::kOneAfterAnother, true},
                          {"attn.v_proj", "attn.c_attn", Joined::kOneAfterAnother, true},
                          {"attn.output_proj", "attn.c_proj", Joined::kNot, true},
                          {"ffn.w1", "mlp.c_fc", Joined::kNot, true},
                          {"ffn.w2", "mlp.c_proj", Joined::kNot, true}};
constexpr Rule kNeox[] = {{"token_embeddings", "gpt_neox.embed_in"},
                          {"ln_final", "gpt_neox.final_layer_norm"},
                          {"lm_head", "embed_out"},
                          {"ln1", "input_layernorm"},
                          {"ln2", "post_attention_layernorm"},
                          {"attn.q_proj", "attention.query_key_value", Joined::kByHead},
                          {"attn.k_proj", "attention.query_key_value", Joined::kByHead},
                          {"attn.v_proj", "attention.query_key_value", Joined::kByHead},
                          {"attn.output_proj", "attention.dense"},
                          {"ffn.w1", "mlp.dense_h_to_4h"},
                          {"ffn.w2", "mlp.dense_4h_to_h"}};

Naming naming_of(std::string_view family) {
  if (family == "gpt2") return {"transformer.", "transformer.h.", kGpt2};
  if (family == "gpt_neox") return {"gpt_neox.", "gpt_neox.layers.", kNeox};
  if (family == "phi3") return {"model.", "model.layers.", kPhi3, kLlama};
  if (family == "starcoder2") return {"model.", "model.layers.", kStarcoder2, kLlama};
  if (family.starts_with("gemma") && family != "gemma")
    return {"model.", "model.layers.", kGemma, kLlama};
  return {"model.", "model.layers.", kLlama};
}

// The name of a tensor, "layers.3.attn.q_proj.weight", taken apart: layer, module and kind.
struct Name {
  std::string_view layer, module, kind;  // "layers.3.", "attn.q_proj", ".weight"

  explicit Name(std::string_view whole) {
    constexpr std::string_view kLayers = "layers.";
    if (whole.starts_with(kLayers)) layer = whole.substr(0, whole.find('.', kLayers.size()) + 1);
    const std::size_t dot = whole.rfind('.');
    module = whole.substr(layer.size(), dot - layer.size());
    kind = whole.substr(dot);
  }
};

struct Found {
  const Rule* rule = nullptr;
  std::span<const Rule> among;  // the rules of the tensors that it may be joined with
};

Found find_rule(const Naming& naming, std::string_view module) {
  for (const std::span<const Rule> rules : {naming.own, naming.others}) {
    const auto found = std::ranges::find(rules, module, &Rule::ours);
    if (found != rules.end()) return {&*found, rules};
  }
  return {};
}

bool is_rotated(std::string_view module) {
  return module == "attn.q_proj" || module == "attn.k_proj" || module == "attn.q_norm" ||
         module == "attn.k_norm";
}

// A family's tensor: the row where ours begins, its rows in all, and how many of ours form it.
struct Rows {
  std::int64_t first = 0, all = 0, parts = 0;
};

Rows rows_of(const Found& found, const Name& name, const std::map<std::string, Shape>& ours) {
  Rows out;
  for (const Rule& other : found.among) {
    if (other.theirs != found.rule->theirs) continue;
    if (found.rule->joined == Joined::kNot && &other != found.rule) continue;
    const auto shape = ours.find(fmt::format("{}{}{}", name.layer, other.ours, name.kind));
    if (shape == ours.end()) continue;
    if (&other == found.rule) out.first = out.all;
    out.all += shape->second[0];
    ++out.parts;
  }
  return out;
}

}  // namespace

std::int64_t FamilyTensor::row(std::int64_t r) const {
  const std::int64_t in_block = r % width;
  const bool is_pair = in_block < turned;
  return first + r / width * step +
         (is_pair ? in_block % 2 * (turned / 2) + in_block / 2 : in_block);
}

std::map<std::string, FamilyTensor> tensors_in_family(std::string_view family,
                                                      const ModelConfig& config,
                                                      const std::map<std::string, Shape>& ours) {
  const Naming naming = naming_of(family);
  const std::int64_t turned = config.positions == Positions::kRotary ? config.rotated_width() : 0;
  std::map<std::string, FamilyTensor> out;
  for (const auto& [own, shape] : ours) {
    const Name name(own);
    const Found found = find_rule(naming, name.module);
    if (found.rule == nullptr) fail_usage(own, "models of the type {} have none", family);
    const bool is_by_head = found.rule->joined == Joined::kByHead;
    const bool has_heads = is_by_head || is_rotated(name.module);
    const Rows rows = rows_of(found, name, ours);
    FamilyTensor theirs{.shape = shape, .width = has_heads ? config.head_width() : shape[0]};
    const std::string_view index = name.layer.empty() ? "" : name.layer.substr(7);
    theirs.name = fmt::format("{}{}{}{}", name.layer.empty() ? "" : naming.layers, index,
                              found.rule->theirs, name.kind == ".bias" ? ".bias" : ".weight");
    theirs.shape[0] = rows.all;
    theirs.first = is_by_head ? rows.first / shape[0] * theirs.width : rows.first;
    theirs.step = is_by_head ? rows.parts * theirs.width : theirs.width;
    theirs.turned = is_rotated(name.module) ? turned : 0;
    theirs.is_transposed = found.rule->is_transposed && shape.rank() == 2;
    if (theirs.is_transposed) std::swap(theirs.shape[0], theirs.shape[1]);
    out.emplace(own, std::move(theirs));
  }
  return out;
}

std::string_view stem_of_family(std::string_view family) {
  return naming_of(family).stem;
}

}  // namespace tracestep
