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
#include "base/log.h"
#include "base/suggest.h"

namespace tracestep {
namespace {

constexpr const char* kConfigFile = "config.json";
constexpr std::int64_t kMostSize = std::int64_t{1} << 40;
constexpr std::int64_t kMostLayers = 4096;  // as by flags (spec/fields)

// Fields that only say how a model generates, runs, starts or is stored.
constexpr std::string_view kWithoutMeaning[] = {"architectures",
                                                "model_type",
                                                "torch_dtype",
                                                "dtype",
                                                "transformers_version",
                                                "use_cache",
                                                "bos_token_id",
                                                "eos_token_id",
                                                "pad_token_id",
                                                "sep_token_id",
                                                "cls_token_id",
                                                "decoder_start_token_id",
                                                "initializer_range",
                                                "_name_or_path",
                                                "name_or_path",
                                                "_attn_implementation",
                                                "_attn_implementation_autoset",
                                                "attn_implementation",
                                                "cache_implementation",
                                                "pretraining_tp",
                                                "task_specific_params",
                                                "summary_activation",
                                                "summary_first_dropout",
                                                "summary_proj_to_labels",
                                                "summary_type",
                                                "summary_use_proj",
                                                "is_llama_config",
                                                "transformers.js_config",
                                                "return_dict",
                                                "output_attentions",
                                                "output_hidden_states",
                                                "torchscript",
                                                "id2label",
                                                "label2id",
                                                "problem_type",
                                                "is_decoder",
                                                "cross_attention_hidden_size",
                                                "gradient_checkpointing",
                                                "chunk_size_feed_forward",
                                                "finetuning_task",
                                                "tokenizer_class",
                                                "prefix",
                                                "tie_encoder_decoder",
                                                "use_bfloat16",
                                                "tf_legacy_loss",
                                                "reorder_and_upcast_attn",
                                                "unsloth_version",
                                                "unsloth_fixed",
                                                "n_ctx"};

// Shares of values that training sets to zero, which no program here does.
constexpr std::string_view kDropouts[] = {"attention_dropout",
                                          "hidden_dropout",
                                          "resid_pdrop",
                                          "embd_pdrop",
                                          "attn_pdrop",
                                          "embd_dropout",
                                          "attention_probs_dropout_prob",
                                          "hidden_dropout_prob"};
constexpr std::string_view kDropoutsOfOtherHeads[] = {"classifier_dropout"};

// The fields of a config.json; those that nobody asks for are reported at the end.
class Fields {
 public:
  Fields(const Json& json, std::string where) : json_(json), where_(std::move(where)) {}

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
  // Only this value has a program.
  void expect(std::string_view key, bool value) {
    if (flag(key, value) != value) fail(key, value ? "true" : "false");
  }

  [[noreturn]] void fail(std::string_view key, std::string_view expected) const {
    const Json* value = json_.find(key);
    std::string seen = value == nullptr ? "missing" : value->dump();
    if (seen.size() > 80) seen = seen.substr(0, 77) + "...";
    fail_input(where_, "\"{}\" is {}; {} is expected", key, seen, expected);
  }

  // Error for members that nobody has asked for.
  void finish() {
    std::vector<std::string> unknown;
    for (const auto& [key, value] : json_.members()) {
      const bool is_known =
          used_.contains(key) || value.is_null() ||
          std::ranges::find(kWithoutMeaning, key) != std::end(kWithoutMeaning) ||
          std::ranges::find(kDropoutsOfOtherHeads, key) != std::end(kDropoutsOfOtherHeads);
      if (!is_known) unknown.push_back(key.size() > 60 ? key.substr(0, 57) + "..." : key);
    }
    if (unknown.empty()) return;
    constexpr std::size_t kShown = 8;
    const std::size_t count = unknown.size();
    unknown.resize(std::min(count, kShown));
    throw Error(ErrorCode::kInput, where_,
                fmt::format("unknown fields, which may change the model: {}{}",
                            fmt::join(unknown, ", "), count > kShown ? ", ..." : ""),
                "remove them if they only say how to generate or run");
  }

  const std::string& where() const { return where_; }
  const Json& json() const { return json_; }

 private:
  const Json& json_;
  std::string where_;
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

// `positions`: max_position_embeddings.
RopeScaling scaling_of(Fields& f, std::int64_t positions) {
  const std::string old = f.text("type", "default"), kind = f.text("rope_type", old);
  RopeScaling out;
  if (kind == "default") return out;
  if (kind != "linear" && kind != "llama3" && kind != "yarn") {
    f.fail(f.find("rope_type") != nullptr ? "rope_type" : "type",
           "default, linear, llama3 or yarn");
  }
  if (f.find("factor") == nullptr) f.fail("factor", "a factor of at least 1");
  out.factor = f.real("factor", 1.0);
  if (kind == "linear") {
    out.kind = RopeScalingKind::kLinear;
    return out;
  }
  out.original = f.integer("original_max_position_embeddings", positions);
  if (kind == "llama3") {
    out.kind = RopeScalingKind::kLlama3;
    out.low = f.real("low_freq_factor", 1.0);
    out.high = f.real("high_freq_factor", 4.0);
  } else {
    out.kind = RopeScalingKind::kYarn;
    out.low = f.real("beta_slow", 1.0);
    out.high = f.real("beta_fast", 32.0);
    out.magnitude = yarn_magnitude(f, out.factor);
    f.expect("truncate", true);
  }
  return out;
}

// A member that is an object of fields of its own.
void read_rope(const Json& json, const std::string& where, std::int64_t positions, double& theta,
               ModelConfig& c, bool is_scaled) {
  if (!json.is_object()) fail_input(where, "it is {}; an object is expected", json.dump());
  Fields f(json, where);
  theta = f.real("rope_theta", theta);
  if (theta < 1.0) f.fail("rope_theta", "a base of at least 1");
  c.rope_share = f.real("partial_rotary_factor", c.rope_share);
  const RopeScaling scaling = scaling_of(f, positions);
  if (is_scaled) c.rope_scaling = scaling;
  f.finish();
}

// rope_theta and rope_scaling, or rope_parameters, which may be apart for layers with a window.
void read_rotation(Fields& f, ModelConfig& c) {
  const std::int64_t positions = f.integer("max_position_embeddings", 2048);
  f.integer("original_max_position_embeddings", positions);
  f.expect("rope_interleaved", false);
  c.rope_theta = f.real("rope_theta", c.rope_theta);
  c.rope_share = f.real("partial_rotary_factor", c.rope_share);
  if (const Json* scaling = f.find("rope_scaling")) {
    read_rope(*scaling, f.where() + " rope_scaling", positions, c.rope_theta, c, true);
  }
  const Json* all = f.find("rope_parameters");
  if (all == nullptr) return;
  const std::string where = f.where() + " rope_parameters";
  if (!all->is_object()) f.fail("rope_parameters", "an object");
  const Json *full = all->find("full_attention"), *windowed = all->find("sliding_attention");
  if (full == nullptr) return read_rope(*all, where, positions, c.rope_theta, c, true);
  read_rope(*full, where + " full_attention", positions, c.rope_theta, c, true);
  if (windowed == nullptr) return;
  double theta = c.rope_theta_windowed;
  ModelConfig unscaled{.rope_share = c.rope_share};
  read_rope(*windowed, where + " sliding_attention", positions, theta, unscaled, true);
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

// What the families after Llama share.
void read_sizes(Fields& f, ModelConfig& c) {
  c.vocab = f.integer("vocab_size", c.vocab);
  c.d_model = f.integer("hidden_size", c.d_model);
  c.d_ff = f.integer("intermediate_size", c.d_ff);
  c.layers = f.integer("num_hidden_layers", c.layers, kMostLayers);
  c.heads = f.integer("num_attention_heads", c.heads);
  c.is_tied = f.flag("tie_word_embeddings", c.is_tied);
}
void read_like_llama(Fields& f, ModelConfig& c, std::int64_t kv_heads) {
  read_sizes(f, c);
  // A null says that all heads have their own, a missing field that the number is the usual one.
  const bool is_usual = kv_heads > 0 && f.json().find("num_key_value_heads") == nullptr;
  c.kv_heads = f.integer("num_key_value_heads", is_usual ? kv_heads : c.heads);
  c.head_size = f.find("head_dim") != nullptr ? f.integer("head_dim", 1) : c.head_size;
  c.norm_eps = f.real("rms_norm_eps", c.norm_eps);
  c.activation = activation_of(f, "hidden_act", "silu");
  read_rotation(f, c);
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

void read_like_gemma(Fields& f, ModelConfig& c) {
  c.norm_eps = 1e-6;
  c.head_size = 256;
  c.is_tied = true;
  c.norm_place = NormPlace::kBoth;
  c.norm_offset = 1.0;
  read_like_llama(f, c, 4);
  const Activation other = c.activation;
  c.activation = activation_of(f, "hidden_activation", "gelu_pytorch_tanh");
  if (f.find("hidden_act") != nullptr && other != c.activation) {
    f.fail("hidden_act", "that of hidden_activation, which is the one that counts,");
  }
  read_attention_bias(f, c, false);
  c.embedding_scale = std::sqrt(static_cast<double>(c.d_model));
  const double width = f.real("query_pre_attn_scalar", 256.0);
  if (width <= 0.0) f.fail("query_pre_attn_scalar", "a positive number");
  c.score_scale = width == static_cast<double>(c.head_width()) ? 0.0 : 1.0 / std::sqrt(width);
  c.score_cap = f.real("attn_logit_softcapping", c.score_cap);
  c.logit_cap = f.real("final_logit_softcapping", c.logit_cap);
  f.expect("use_bidirectional_attention", false);
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

void read_phi3(Fields& f, ModelConfig& c) {
  c.norm_eps = 1e-5;
  read_like_llama(f, c, 0);
  f.expect("attention_bias", false);
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
                                {"gemma2", read_gemma2, 256000, 2304, 9216, 26, 8},
                                {"gemma3_text", read_gemma3, 262208, 2304, 9216, 26, 8},
                                {"olmo2", read_olmo2, 50304, 4096, 11008, 32, 32},
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

ReadModel model_of_json(const Json& json, const std::string& where) {
  if (!json.is_object()) fail_input(where, "it is no object with a model's fields");
  if (const Json* text = json.find("text_config"); text != nullptr && text->is_object()) {
    ReadModel out = model_of_json(*text, where + " text_config");
    Fields whole(json, where);
    if (whole.find("quantization_config") != nullptr) whole.fail("quantization_config", "none");
    whole.expect("tie_word_embeddings", out.config.is_tied);
    out.notes.insert(out.notes.begin(), "only its text part is read");
    out.is_part = true;
    return out;
  }
  Fields fields(json, where);
  const Json* type = json.find("model_type");
  if (type == nullptr || !type->is_string()) {
    fail_input(where, "it has no \"model_type\", which says what the other fields mean");
  }
  const auto* const family = std::ranges::find(kFamilies, type->as_string(), &Family::type);
  if (family == std::end(kFamilies)) {
    std::string name = type->as_string().substr(0, 60);
    throw Error(ErrorCode::kInput, where,
                fmt::format("models of the type \"{}\" are not known{}", name,
                            did_you_mean(name, known_families())),
                fmt::format("known are {}", fmt::join(known_families(), ", ")));
  }
  ReadModel out{.config = {}, .family = std::string(family->type)};
  ModelConfig& c = out.config;
  c = {.vocab = family->vocab,
       .d_model = family->d_model,
       .d_ff = family->d_ff,
       .layers = family->layers,
       .heads = family->heads};
  family->read(fields, c);
  fields.expect("is_encoder_decoder", false);
  fields.expect("add_cross_attention", false);
  const Json* pruned = fields.find("pruned_heads");
  if (pruned != nullptr && *pruned != Json::object()) fields.fail("pruned_heads", "none");
  add_dropout_note(fields, out.notes);
  if (fields.find("auto_map") != nullptr) {
    out.notes.emplace_back("code that comes with the model is not run");
  }
  fields.finish();
  c = normalised(c);
  try {
    validate(c);
  } catch (const Error& error) {
    throw Error(ErrorCode::kInput, where, fmt::format("{}: {}", error.where(), error.message()));
  }
  return out;
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
    static std::set<std::string> said;  // a flag may be read more than once
    for (const std::string& note : read.notes) {
      const std::string line = fmt::format("[{}] {}", text, note);
      if (said.insert(line).second) log_info("{}", line);
    }
    return read.config;
  }
  const bool is_path = text.find('/') != std::string::npos || text.ends_with(".json");
  if (is_path) {
    const ModelConfig* named = find_model(text.substr(text.rfind('/') + 1));  // "meta-llama/…"
    throw Error(ErrorCode::kInput, text, "there is no such file or folder",
                named == nullptr ? "" : fmt::format("did you mean '{}'?", named->name));
  }
  try {
    return preset(text);
  } catch (const Error& unknown) {
    throw Error(ErrorCode::kUsage, where, unknown.message(), unknown.hint());
  }
}

}  // namespace tracestep
