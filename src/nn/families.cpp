#include "nn/families.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <optional>
#include <set>

#include <fmt/ranges.h>

#include "base/error.h"
#include "base/input_file.h"
#include "base/log_once.h"
#include "base/suggest.h"
#include "nn/harmless_fields.h"

namespace tracestep {
namespace {

constexpr const char* kConfigFile = "config.json";
constexpr std::int64_t kMostSize = std::int64_t{1} << 40;
constexpr std::int64_t kMostLayers = 4096;  // as by flags (spec/fields)

// Shares of values that training sets to zero, which no program here does.
constexpr std::string_view kDropouts[] = {
    "attention_dropout",  "hidden_dropout",    "resid_pdrop",
    "embd_pdrop",         "attn_pdrop",        "embd_dropout",
    "residual_dropout",   "embedding_dropout", "attention_probs_dropout_prob",
    "hidden_dropout_prob"};

// The fields of a config.json; those that nobody asks for are listed at the end.
class Fields {
 public:
  // `unknown`: the list.
  Fields(const Json& json, std::string where, std::vector<std::string>& unknown)
      : json_(json), where_(std::move(where)), unknown_(unknown) {}

  // The member, or nullptr where it is missing or null.
  const Json* find(std::string_view key) {
    used_.emplace(key);
    const Json* value = json_.find(key);
    return value == nullptr || value->is_null() ? nullptr : value;
  }

  std::int64_t integer(std::string_view key, std::int64_t usual, std::int64_t most = kMostSize) {
    const Json* value = find(key);
    if (value == nullptr) return usual;
    if (!value->is_int()) fail(key, "a whole number");
    if (value->as_int() < 1 || value->as_int() > most) fail(key, "a size of a model");
    return value->as_int();
  }
  double real(std::string_view key, double usual) {
    const Json* value = find(key);
    if (value == nullptr) return usual;
    if (!value->is_number() || !std::isfinite(value->as_double())) fail(key, "a number");
    return value->as_double();
  }
  bool flag(std::string_view key, bool usual) {
    const Json* value = find(key);
    if (value == nullptr) return usual;
    if (!value->is_bool()) fail(key, "true or false");
    return value->as_bool();
  }
  std::string text(std::string_view key, std::string usual) {
    const Json* value = find(key);
    if (value == nullptr) return usual;
    if (!value->is_string()) fail(key, "a name");
    return value->as_string();
  }
  // Refuses any other value of the field: no program computes it.
  void expect(std::string_view key, bool value) {
    if (flag(key, value) != value) fail(key, value ? "true" : "false");
  }

  [[noreturn]] void fail(std::string_view key, std::string_view expected) const {
    const Json* value = json_.find(key);
    std::string seen = value == nullptr ? "missing" : value->dump();
    if (seen.size() > 80) seen = seen.substr(0, 77) + "...";
    fail_input(where_, "\"{}\" is {}; {} is expected", key, seen, expected);
  }

  // Lists the members that nobody has asked for, unless they are harmless.
  void finish() {
    for (const auto& [key, value] : json_.members()) {
      if (used_.contains(key) || is_harmless_field(key, value, json_)) continue;
      unknown_.push_back(key.size() > 60 ? key.substr(0, 57) + "..." : key);
    }
  }

  const std::string& where() const { return where_; }
  const Json& json() const { return json_; }
  std::vector<std::string>& unknown() const { return unknown_; }

 private:
  const Json& json_;
  std::string where_;
  std::vector<std::string>& unknown_;
  std::set<std::string, std::less<>> used_;
};

Activation activation_of(Fields& f, std::string_view key, const std::string& usual) {
  const std::string name = f.text(key, usual);
  if (name == "silu" || name == "swish") return Activation::kSilu;
  if (name == "gelu") return Activation::kGelu;
  if (name == "gelu_new" || name == "gelu_pytorch_tanh" || name == "gelu_fast") {
    return Activation::kGeluTanh;
  }
  if (name == "relu") return Activation::kRelu;
  f.fail(key, "silu, gelu, gelu_new, gelu_pytorch_tanh or relu");
}

// YaRN's factor on cos and sin.
double yarn_magnitude(Fields& f, double factor) {
  const auto of = [factor](double share) {
    return factor <= 1.0 ? 1.0 : 0.1 * share * std::log(factor) + 1.0;
  };
  const double own = f.real("mscale", 0.0), all = f.real("mscale_all_dim", 0.0);
  const double usual = own > 0.0 && all > 0.0 ? of(own) / of(all) : of(1.0);
  return f.real("attention_factor", usual);
}

// The numbers of a list with one for each pair of elements that are rotated.
std::vector<double> factors_of(Fields& f, std::string_view key, std::int64_t pairs) {
  const Json* list = f.find(key);
  const auto is_factor = [](const Json& x) {
    return x.is_number() && std::isfinite(x.as_double()) && x.as_double() > 0.0;
  };
  if (list == nullptr || !list->is_array() || std::ssize(list->items()) != pairs ||
      !std::ranges::all_of(list->items(), is_factor)) {
    f.fail(key, fmt::format("a list of {} factors", pairs));
  }
  std::vector<double> out;
  for (const Json& item : list->items()) out.push_back(item.as_double());
  return out;
}

struct Lengths {
  std::int64_t most = 2048;    // max_position_embeddings
  std::int64_t original = 0;   // original_max_position_embeddings beside it; 0: there is none
  bool has_old_names = false;  // longrope was called su and yarn
};

void read_longrope(Fields& f, const Lengths& lengths, const ModelConfig& c, RopeScaling& out) {
  const auto original = static_cast<double>(out.original);
  const double factor = f.real("factor", static_cast<double>(lengths.most) / original);
  const double usual = factor <= 1.0 || out.original <= 1
                           ? 1.0
                           : std::sqrt(1 + std::log(factor) / std::log(original));
  out.magnitude = f.real("attention_factor", usual);
  const bool is_share = c.rope_share > 0.0 && c.rope_share <= 1.0;
  const std::int64_t pairs = is_share ? c.rotated_width() / 2 : 0;
  out.near = factors_of(f, "short_factor", pairs);
  out.far = factors_of(f, "long_factor", pairs);
}

RopeScalingKind scaling_kind_of(Fields& f, bool has_old_names) {
  const std::string old = f.text("type", "default"), kind = f.text("rope_type", old);
  const auto found = std::ranges::find_if(
      kAllRopeScalings, [&](RopeScalingKind one) { return name_of(one) == kind; });
  if (kind == "default") return RopeScalingKind::kNone;
  if (has_old_names && (kind == "su" || kind == "yarn")) return RopeScalingKind::kLongRope;
  if (found == std::end(kAllRopeScalings) || kind == "none") {
    f.fail(f.find("rope_type") != nullptr ? "rope_type" : "type",
           "default, linear, llama3, yarn or longrope");
  }
  return *found;
}

RopeScaling scaling_of(Fields& f, const Lengths& lengths, const ModelConfig& c) {
  RopeScaling out{.kind = scaling_kind_of(f, lengths.has_old_names)};
  if (out.kind == RopeScalingKind::kNone) return out;
  const std::int64_t own = f.integer("original_max_position_embeddings", lengths.most);
  if (out.kind != RopeScalingKind::kLinear) {
    out.original = lengths.original > 0 ? lengths.original : own;
  }
  if (out.kind == RopeScalingKind::kLongRope) {
    read_longrope(f, lengths, c, out);
    return out;
  }
  if (f.find("factor") == nullptr) f.fail("factor", "a factor of at least 1");
  out.factor = f.real("factor", 1.0);
  if (out.kind == RopeScalingKind::kLlama3) {
    out.low = f.real("low_freq_factor", 1.0);
    out.high = f.real("high_freq_factor", 4.0);
  } else if (out.kind == RopeScalingKind::kYarn) {
    out.low = f.real("beta_slow", 1.0);
    out.high = f.real("beta_fast", 32.0);
    out.magnitude = yarn_magnitude(f, out.factor);
    f.expect("truncate", true);
  }
  return out;
}

// A member that is an object of fields of its own. `from`: the fields around it.
void read_rope(const Json& json, const std::string& where, const Fields& from,
               const Lengths& lengths, double& theta, ModelConfig& c) {
  if (!json.is_object()) fail_input(where, "it is {}; an object is expected", json.dump());
  Fields f(json, where, from.unknown());
  theta = f.real("rope_theta", theta);
  if (theta < 1.0) f.fail("rope_theta", "a base of at least 1");
  c.rope_share = f.real("partial_rotary_factor", c.rope_share);
  c.rope_scaling = scaling_of(f, lengths, c);
  f.finish();
}

// rope_theta and rope_scaling, or rope_parameters, which may be apart for layers with a window.
// `lengths`: the usual ones.
void read_rotation(Fields& f, ModelConfig& c, Lengths lengths = {}) {
  if (f.find("max_position_embeddings") != nullptr) {
    c.max_positions = lengths.most = f.integer("max_position_embeddings", 1);
  }
  if (f.find("original_max_position_embeddings") != nullptr) {
    lengths.original = f.integer("original_max_position_embeddings", 1);
  }
  f.expect("rope_interleaved", false);
  c.rope_theta = f.real("rope_theta", c.rope_theta);
  c.rope_share = f.real("partial_rotary_factor", c.rope_share);
  if (const Json* scaling = f.find("rope_scaling")) {
    read_rope(*scaling, f.where() + " rope_scaling", f, lengths, c.rope_theta, c);
  }
  const Json* all = f.find("rope_parameters");
  if (all == nullptr) return;
  const std::string where = f.where() + " rope_parameters";
  if (!all->is_object()) f.fail("rope_parameters", "an object");
  const Json *full = all->find("full_attention"), *windowed = all->find("sliding_attention");
  if (full == nullptr) return read_rope(*all, where, f, lengths, c.rope_theta, c);
  read_rope(*full, where + " full_attention", f, lengths, c.rope_theta, c);
  if (windowed == nullptr) return;
  double theta = c.rope_theta_windowed;
  ModelConfig unscaled = c;
  read_rope(*windowed, where + " sliding_attention", f, lengths, theta, unscaled);
  if (unscaled.rope_scaling.kind != RopeScalingKind::kNone) {
    fail_input(where, "layers with a window are scaled; only the others can be");
  }
  if (unscaled.rope_share != c.rope_share) {
    fail_input(where, "layers with a window rotate another part of a head than the others");
  }
  c.rope_theta_windowed = theta;
}

// "layer_types", or the usual pattern of the family. A null says that there is no window, a missing
// field that it is the usual one.
void read_windows(Fields& f, ModelConfig& c, std::int64_t usual_window, std::string usual_layers) {
  const bool is_missing = f.json().find("sliding_window") == nullptr;
  c.window = f.find("sliding_window") != nullptr ? f.integer("sliding_window", 1)
             : is_missing                        ? usual_window
                                                 : 0;
  const Json* types = f.find("layer_types");
  if (types == nullptr) {
    c.window_layers = std::move(usual_layers);
  } else {
    c.window_layers.clear();
    if (!types->is_array() || std::ssize(types->items()) != c.layers) {
      f.fail("layer_types", "a list with a type for each layer");
    }
    for (const Json& type : types->items()) {
      const bool is_windowed = type == Json("sliding_attention");
      if (!is_windowed && type != Json("full_attention")) {
        f.fail("layer_types", "full_attention or sliding_attention for each layer");
      }
      c.window_layers += is_windowed ? 'w' : 'f';
    }
  }
}

// Reads the sizes that the families after Llama store under the same names.
void read_sizes(Fields& f, ModelConfig& c) {
  c.vocab = f.integer("vocab_size", c.vocab);
  c.d_model = f.integer("hidden_size", c.d_model);
  c.d_ff = f.integer("intermediate_size", c.d_ff);
  c.layers = f.integer("num_hidden_layers", c.layers, kMostLayers);
  c.heads = f.integer("num_attention_heads", c.heads);
  c.is_tied = f.flag("tie_word_embeddings", c.is_tied);
}
void read_like_llama(Fields& f, ModelConfig& c, std::int64_t kv_heads,
                     const Lengths& lengths = {}) {
  read_sizes(f, c);
  // A null says that all heads have their own, a missing field that the number is the usual one.
  const bool is_usual = kv_heads > 0 && f.json().find("num_key_value_heads") == nullptr;
  c.kv_heads = f.integer("num_key_value_heads", is_usual ? kv_heads : c.heads);
  c.head_size = f.find("head_dim") != nullptr ? f.integer("head_dim", 1) : c.head_size;
  c.norm_eps = f.real("rms_norm_eps", c.norm_eps);
  c.activation = activation_of(f, "hidden_act", "silu");
  read_rotation(f, c, lengths);
}

void read_attention_bias(Fields& f, ModelConfig& c, bool usual) {
  c.qkv_bias = c.output_bias = f.flag("attention_bias", usual);
}

void read_llama(Fields& f, ModelConfig& c) {
  c.norm_eps = 1e-6;
  read_like_llama(f, c, 0);
  read_attention_bias(f, c, false);
  c.ffn_bias = f.flag("mlp_bias", false);
}

void read_mistral(Fields& f, ModelConfig& c) {
  c.norm_eps = 1e-6;
  read_like_llama(f, c, 8);
  read_windows(f, c, 4096, "w");
}

// Windows from the layer "max_window_layers" on, where they are switched on.
void read_qwen_windows(Fields& f, ModelConfig& c) {
  const bool is_on = f.flag("use_sliding_window", false);
  const Json* first = f.find("max_window_layers");
  if (first != nullptr && !first->is_int()) f.fail("max_window_layers", "a whole number");
  const std::int64_t full =
      std::clamp<std::int64_t>(first != nullptr ? first->as_int() : 28, 0, c.layers);
  std::string layers(static_cast<std::size_t>(full), 'f');
  layers.resize(static_cast<std::size_t>(c.layers), 'w');
  read_windows(f, c, 4096, std::move(layers));
  if (!is_on) c.window = 0;
}

void read_qwen2(Fields& f, ModelConfig& c) {
  c.norm_eps = 1e-6;
  read_like_llama(f, c, 32);
  c.qkv_bias = true;
  read_qwen_windows(f, c);
}

void read_qwen3(Fields& f, ModelConfig& c) {
  c.norm_eps = 1e-6;
  c.head_size = 128;
  read_like_llama(f, c, 32);
  read_attention_bias(f, c, false);
  c.qk_norm = QkNorm::kHead;
  read_qwen_windows(f, c);
}

// Sets the fields that all Gemmas share.
void read_any_gemma(Fields& f, ModelConfig& c, std::int64_t kv_heads) {
  c.norm_eps = 1e-6;
  c.head_size = 256;
  c.is_tied = true;
  c.norm_offset = 1.0;
  read_like_llama(f, c, kv_heads);
  read_attention_bias(f, c, false);
  c.embedding_scale = std::sqrt(static_cast<double>(c.d_model));
  f.expect("use_bidirectional_attention", false);
}

// The first files say gelu and mean its approximation by tanh, as a later field does.
void read_gemma(Fields& f, ModelConfig& c) {
  read_any_gemma(f, c, 16);
  c.activation = activation_of(f, "hidden_act", "gelu_pytorch_tanh");
  if (c.activation == Activation::kGelu) c.activation = Activation::kGeluTanh;
  if (f.find("hidden_activation") != nullptr) {
    c.activation = activation_of(f, "hidden_activation", "gelu_pytorch_tanh");
  }
}

void read_like_gemma(Fields& f, ModelConfig& c) {
  c.norm_place = NormPlace::kBoth;
  read_any_gemma(f, c, 4);
  const Activation other = c.activation;
  c.activation = activation_of(f, "hidden_activation", "gelu_pytorch_tanh");
  if (f.find("hidden_act") != nullptr && other != c.activation) {
    f.fail("hidden_act", "that of hidden_activation, which is the one that counts,");
  }
  const double width = f.real("query_pre_attn_scalar", 256.0);
  if (width <= 0.0) f.fail("query_pre_attn_scalar", "a positive number");
  c.score_scale = width == static_cast<double>(c.head_width()) ? 0.0 : 1.0 / std::sqrt(width);
  c.score_cap = f.real("attn_logit_softcapping", c.score_cap);
  c.logit_cap = f.real("final_logit_softcapping", c.logit_cap);
}

void read_gemma2(Fields& f, ModelConfig& c) {
  // A null says that there is no cap, a missing field that it is the usual one.
  if (f.json().find("attn_logit_softcapping") == nullptr) c.score_cap = 50.0;
  if (f.json().find("final_logit_softcapping") == nullptr) c.logit_cap = 30.0;
  read_like_gemma(f, c);
  read_windows(f, c, 4096, "wf");
  if (f.integer("sliding_window_size", std::max<std::int64_t>(c.window, 1)) != c.window) {
    f.fail("sliding_window_size", "that of sliding_window, which is the one that counts,");
  }
}

void read_gemma3(Fields& f, ModelConfig& c) {
  c.rope_theta = 1e6;
  c.qk_norm = QkNorm::kHead;
  c.rope_theta_windowed = f.real("rope_local_base_freq", 10000.0);
  read_like_gemma(f, c);
  const std::int64_t every =
      f.integer("sliding_window_pattern", f.integer("_sliding_window_pattern", 6));
  if (every > c.layers) {
    read_windows(f, c, 4096, "w");
  } else {
    read_windows(f, c, 4096, std::string(static_cast<std::size_t>(every) - 1, 'w') + "f");
  }
}

void read_olmo2(Fields& f, ModelConfig& c) {
  c.norm_eps = 1e-5;
  read_like_llama(f, c, 0);
  read_attention_bias(f, c, false);
  c.norm_place = NormPlace::kAfter;
  c.qk_norm = QkNorm::kToken;
}

// Layers with a window are not scaled.
void read_olmo3(Fields& f, ModelConfig& c) {
  c.rope_theta = 500000.0;
  read_olmo2(f, c);
  read_windows(f, c, 4096, "wwwf");
  const bool is_scaled = c.rope_scaling.kind != RopeScalingKind::kNone;
  if (is_scaled && c.rope_theta_windowed == 0.0) c.rope_theta_windowed = c.rope_theta;
}

void read_starcoder2(Fields& f, ModelConfig& c) {
  c.is_tied = true;
  read_like_llama(f, c, 2, {.most = 4096});
  c.activation = activation_of(f, "hidden_act", "gelu_pytorch_tanh");
  c.norm_eps = f.real("norm_epsilon", 1e-5);
  c.norm = NormKind::kLayer;
  c.norm_bias = true;
  c.qkv_bias = c.output_bias = c.ffn_bias = f.flag("use_bias", true);
  c.is_gated = false;
  read_windows(f, c, 0, "w");
  const auto expect = [&](const char* key, const char* only) {
    if (f.text(key, only) != only) f.fail(key, only);
  };
  expect("mlp_type", "default");
  expect("norm_type", "layer_norm");
}

void read_phi3(Fields& f, ModelConfig& c) {
  c.norm_eps = 1e-5;
  read_like_llama(f, c, 0, {.most = 4096, .original = 4096, .has_old_names = true});
  f.expect("attention_bias", false);
  for (const char* key : {"full_attn_mod", "interpolate_factor"}) {  // of Phi-4-mini
    if (f.integer(key, 1) != 1) f.fail(key, "1");
  }
  read_windows(f, c, 0, "w");
}

void read_gpt2(Fields& f, ModelConfig& c) {
  c.is_tied = f.flag("tie_word_embeddings", true);
  c.vocab = f.integer("vocab_size", 50257);
  c.d_model = f.integer("n_embd", 768);
  c.layers = f.integer("n_layer", 12, kMostLayers);
  c.heads = f.integer("n_head", 12);
  c.d_ff = f.integer("n_inner", 4 * c.d_model);
  c.positions = Positions::kLearned;
  c.max_positions = f.integer("n_positions", 1024);
  c.activation = activation_of(f, "activation_function", "gelu_new");
  c.norm_eps = f.real("layer_norm_epsilon", 1e-5);
  c.norm = NormKind::kLayer;
  c.norm_bias = c.qkv_bias = c.output_bias = c.ffn_bias = true;
  c.is_gated = false;
  f.expect("scale_attn_weights", true);
  f.expect("scale_attn_by_inverse_layer_idx", false);
}

void read_gpt_neox(Fields& f, ModelConfig& c) {
  c.rope_share = f.real("rotary_pct", 0.25);
  c.rope_theta = f.real("rotary_emb_base", 10000.0);
  read_sizes(f, c);
  read_rotation(f, c);
  c.activation = activation_of(f, "hidden_act", "gelu");
  c.norm_eps = f.real("layer_norm_eps", 1e-5);
  c.norm = NormKind::kLayer;
  c.norm_bias = c.ffn_bias = true;
  read_attention_bias(f, c, true);
  c.is_gated = false;
  c.is_parallel = f.flag("use_parallel_residual", true);
}

struct Family {
  std::string_view type;
  void (*read)(Fields&, ModelConfig&);
  // The sizes of a model whose config.json leaves them out.
  std::int64_t vocab, d_model, d_ff, layers, heads;
};
constexpr Family kFamilies[] = {{"llama", read_llama, 32000, 4096, 11008, 32, 32},
                                {"mistral", read_mistral, 32000, 4096, 14336, 32, 32},
                                {"qwen2", read_qwen2, 151936, 4096, 22016, 32, 32},
                                {"qwen3", read_qwen3, 151936, 4096, 22016, 32, 32},
                                {"gemma", read_gemma, 256000, 3072, 24576, 28, 16},
                                {"gemma2", read_gemma2, 256000, 2304, 9216, 26, 8},
                                {"gemma3_text", read_gemma3, 262208, 2304, 9216, 26, 8},
                                {"olmo2", read_olmo2, 50304, 4096, 11008, 32, 32},
                                {"olmo3", read_olmo3, 50304, 4096, 11008, 32, 32},
                                {"starcoder2", read_starcoder2, 49152, 3072, 12288, 30, 24},
                                {"phi3", read_phi3, 32064, 3072, 8192, 32, 32},
                                {"gpt2", read_gpt2, 50257, 768, 3072, 12, 12},
                                {"gpt_neox", read_gpt_neox, 50432, 6144, 24576, 44, 64}};

void add_dropout_note(Fields& f, std::vector<std::string>& notes) {
  std::vector<std::string> dropped;
  for (std::string_view key : kDropouts) {
    if (f.real(key, 0.0) != 0.0) dropped.emplace_back(key);
  }
  if (dropped.empty()) return;
  notes.push_back(fmt::format("nothing is dropped in training: {} {} left out",
                              fmt::join(dropped, ", "), dropped.size() == 1 ? "is" : "are"));
}

}  // namespace

std::vector<std::string> known_families() {
  std::vector<std::string> out;
  for (const Family& family : kFamilies) out.emplace_back(family.type);
  return out;
}

namespace {

// "gptq, 4 bits" of a member that says how weights are stored; empty: there is none.
std::string quantization_of(Fields& f) {
  const Json* how = nullptr;
  for (const char* key : {"quantization_config", "quantization", "compression_config"}) {
    const Json* found = f.find(key);
    if (how == nullptr) how = found;
  }
  if (how == nullptr) return "";
  std::string out;
  const auto add = [&](const std::string& part) { out += (out.empty() ? "" : ", ") + part; };
  if (const Json* method = how->find("quant_method"); method != nullptr && method->is_string()) {
    add(method->as_string().substr(0, 40));
  }
  for (const char* key : {"bits", "w_bit", "wbits"}) {
    const Json* bits = how->find(key);
    if (bits != nullptr && bits->is_int()) {
      add(fmt::format("{} bits", bits->as_int()));
      return out;
    }
  }
  for (const int bits : {4, 8}) {
    const Json* is_on = how->find(fmt::format("load_in_{}bit", bits));
    if (is_on != nullptr && *is_on == Json(true)) add(fmt::format("{} bits", bits));
  }
  return out.empty() ? "in a form that is not known" : out;
}

ReadModel text_part_of(const Json& json, const Json& text, const std::string& where) {
  ReadModel out = model_of_json(text, where + " text_config");
  Fields whole(json, where, out.unknown);
  if (out.quantized.empty()) out.quantized = quantization_of(whole);
  whole.expect("tie_word_embeddings", out.config.is_tied);
  out.notes.insert(out.notes.begin(), "only its text part is read");
  out.is_part = true;
  return out;
}

const Family& family_of(const Json& json, const std::string& where) {
  const Json* type = json.find("model_type");
  if (type == nullptr || !type->is_string()) {
    fail_input(where, "it has no \"model_type\", which says what the other fields mean");
  }
  const auto* const family = std::ranges::find(kFamilies, type->as_string(), &Family::type);
  if (family != std::end(kFamilies)) return *family;
  // No type is suggested: a model read as one of a family with a similar name would be another.
  throw Error(
      ErrorCode::kInput, where,
      fmt::format("models of the type \"{}\" are not known", type->as_string().substr(0, 60)),
      fmt::format("known are {}", fmt::join(known_families(), ", ")));
}

}  // namespace

ReadModel model_of_json(const Json& json, const std::string& where) {
  if (!json.is_object()) fail_input(where, "it is no object with a model's fields");
  if (const Json* text = json.find("text_config"); text != nullptr && text->is_object()) {
    return text_part_of(json, *text, where);
  }
  const Family& family = family_of(json, where);
  ReadModel out{.config = {}, .family = std::string(family.type)};
  Fields fields(json, where, out.unknown);
  fields.find("model_type");
  ModelConfig& c = out.config;
  c = {.vocab = family.vocab,
       .d_model = family.d_model,
       .d_ff = family.d_ff,
       .layers = family.layers,
       .heads = family.heads};
  family.read(fields, c);
  fields.expect("is_encoder_decoder", false);
  fields.expect("add_cross_attention", false);
  const Json* pruned = fields.find("pruned_heads");
  if (pruned != nullptr && *pruned != Json::object()) fields.fail("pruned_heads", "none");
  add_dropout_note(fields, out.notes);
  out.quantized = quantization_of(fields);
  if (fields.find("auto_map") != nullptr) {
    out.notes.emplace_back("code that comes with the model is not run");
  }
  fields.finish();
  out.positions = c.max_positions;
  c = normalised(c);
  try {
    validate(c);
  } catch (const Error& error) {
    throw Error(ErrorCode::kInput, where, fmt::format("{}: {}", error.where(), error.message()));
  }
  return out;
}

namespace {

// "a, b, ..." of at most eight.
std::string listed(std::vector<std::string> names) {
  constexpr std::size_t kShown = 8;
  if (names.size() > kShown) {
    names.resize(kShown);
    names.emplace_back("...");
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace

std::vector<std::string> doubts_of(const ReadModel& model) {
  std::vector<std::string> out;
  if (!model.unknown.empty()) out.push_back("not known: " + listed(model.unknown));
  if (!model.quantized.empty()) {
    out.push_back(
        fmt::format("its weights are quantized ({}); read are bf16, f16, f32", model.quantized));
  }
  return out;
}

void require_no_doubts(const ReadModel& model, const std::string& where) {
  if (!model.quantized.empty()) {
    throw Error(ErrorCode::kInput, where, doubts_of(model).back(),
                "take the model that they were quantized from");
  }
  if (model.unknown.empty()) return;
  throw Error(ErrorCode::kInput, where,
              "unknown fields, which may change the model: " + listed(model.unknown),
              "remove them if they only say how to generate or run; planning goes on with them");
}

ReadModel read_model(const std::filesystem::path& path) {
  constexpr std::uint64_t kMostBytes = std::uint64_t{16} << 20;
  std::error_code error;
  const bool is_folder = std::filesystem::is_directory(path, error);
  const std::filesystem::path file = is_folder ? path / kConfigFile : path;
  const std::string where = file.string();
  ReadModel out = model_of_json(Json::parse(read_text_file(file, where, kMostBytes), where), where);
  const std::filesystem::path whole = std::filesystem::absolute(file, error).lexically_normal();
  const bool is_usual = whole.filename() == kConfigFile;
  out.config.name = (is_usual ? whole.parent_path().filename() : whole.stem()).string();
  if (const ModelConfig* known = find_model(out.config.name)) {
    ModelConfig same = out.config;
    same.name = known->name;
    out.config.name = same == *known ? known->name : "";
  }
  if (out.config.name.empty()) out.config.name = ModelConfig().name;
  out.config.source = path.string();
  return out;
}

ModelConfig model_called(const std::string& where, const std::string& text) {
  if (const ModelConfig* found = find_model(text)) return *found;
  std::error_code error;
  if (std::filesystem::exists(text, error)) {
    ReadModel read = read_model(text);
    for (const std::string& note : read.notes) log_once(fmt::format("[{}] {}", text, note));
    return read.config;
  }
  if (const KnownModel* known = stored_as(text)) {
    log_once(fmt::format("[{}] taken as {}, whose sizes are known; weights are read from a folder",
                         text, known->config.name));
    return known->config;
  }
  const bool is_path = text.find('/') != std::string::npos || text.ends_with(".json");
  if (is_path && type_that_is_not_read(text).empty()) {
    throw Error(ErrorCode::kInput, text, "there is no such file or folder",
                "tracestep models lists the models that are known by name");
  }
  try {
    return preset(text);
  } catch (const Error& unknown) {
    throw Error(ErrorCode::kUsage, where, unknown.message(), unknown.hint());
  }
}

}  // namespace tracestep
