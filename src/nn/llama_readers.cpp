#include <algorithm>

#include "nn/family_readers.h"

namespace tracestep::readers {
namespace {

// Reads the windows of Qwen, which layers from "max_window_layers" on have if they are switched on.
void read_qwen_windows(ConfigFields& f, ModelConfig& c, std::int64_t usual_full) {
  const bool is_on = f.flag("use_sliding_window", false);
  const Json* first = f.find("max_window_layers");
  if (first != nullptr && !first->is_int()) f.fail("max_window_layers", "a whole number");
  const std::int64_t full =
      std::clamp<std::int64_t>(first != nullptr ? first->as_int() : usual_full, 0, c.layers);
  std::string layers(static_cast<std::size_t>(full), 'f');
  layers.resize(static_cast<std::size_t>(c.layers), 'w');
  read_windows(f, c, 4096, std::move(layers));
  if (!is_on) c.window = 0;
}

void read_rope_layers(ConfigFields& f, ModelConfig& c, std::int64_t interval) {
  c.rope_layers.clear();
  const Json* rotated = f.find("no_rope_layers");
  if (rotated != nullptr && (!rotated->is_array() || std::ssize(rotated->items()) < c.layers)) {
    f.fail("no_rope_layers", "a list with 1 or 0 for each layer");
  }
  for (std::int64_t i = 0; i < c.layers; ++i) {
    bool is_rotated = (i + 1) % interval != 0;
    if (rotated != nullptr) {
      const Json& one = rotated->items()[static_cast<std::size_t>(i)];
      is_rotated = one == Json(1) || one == Json(true);
      if (!is_rotated && one != Json(0) && one != Json(false)) {
        f.fail("no_rope_layers", "a list with 1 or 0 for each layer");
      }
    }
    c.rope_layers += is_rotated ? 'r' : 'n';
  }
}

}  // namespace

void read_llama(ConfigFields& f, ModelConfig& c) {
  c.norm_eps = 1e-6;
  read_like_llama(f, c, 0);
  read_attention_bias(f, c, false);
  c.ffn_bias = f.flag("mlp_bias", false);
}

void read_mistral(ConfigFields& f, ModelConfig& c) {
  c.norm_eps = 1e-6;
  read_like_llama(f, c, 8);
  read_windows(f, c, 4096, "w");
}

void read_qwen2(ConfigFields& f, ModelConfig& c) {
  c.norm_eps = 1e-6;
  read_like_llama(f, c, 32);
  c.qkv_bias = true;
  read_qwen_windows(f, c, 28);
}

// Reads Qwen2-VL's text part; its rotation has sections, whose positions are equal in a text.
void read_qwen2_vl(ConfigFields& f, ModelConfig& c) {
  c.norm_eps = 1e-5;
  c.rope_theta = 1e6;
  read_like_llama(f, c, 8, {.has_sections = true});
  c.qkv_bias = true;
  read_qwen_windows(f, c, 80);
}

void read_qwen3(ConfigFields& f, ModelConfig& c) {
  c.norm_eps = 1e-6;
  c.head_size = 128;
  read_like_llama(f, c, 32);
  read_attention_bias(f, c, false);
  c.qk_norm = QkNorm::kHead;
  read_qwen_windows(f, c, 28);
}

void read_olmo2(ConfigFields& f, ModelConfig& c) {
  c.norm_eps = 1e-5;
  read_like_llama(f, c, 0);
  read_attention_bias(f, c, false);
  c.norm_place = NormPlace::kAfter;
  c.qk_norm = QkNorm::kToken;
}

// Reads OLMo 3, where the rotation is not scaled in layers with a window.
void read_olmo3(ConfigFields& f, ModelConfig& c) {
  c.rope_theta = 500000.0;
  read_olmo2(f, c);
  read_windows(f, c, 4096, "wwwf");
  const bool is_scaled = c.rope_scaling.kind != RopeScalingKind::kNone;
  if (is_scaled && c.rope_theta_windowed == 0.0) c.rope_theta_windowed = c.rope_theta;
}

void read_phi3(ConfigFields& f, ModelConfig& c) {
  c.norm_eps = 1e-5;
  read_like_llama(f, c, 0, {.most = 4096, .original = 4096, .has_old_names = true});
  f.expect("attention_bias", false);
  for (const char* key : {"full_attn_mod", "interpolate_factor"}) {  // of Phi-4-mini
    if (f.integer(key, 1) != 1) f.fail(key, "1");
  }
  read_windows(f, c, 0, "w");
}

// Reads SmolLM3. "no_rope_layers" has 1 for a rotated layer; without this list, one layer in
// "no_rope_layer_interval" is not rotated. Windows, if on, are usually on layers without rotation.
void read_smollm3(ConfigFields& f, ModelConfig& c) {
  c.norm_eps = 1e-6;
  c.rope_theta = 2e6;
  c.is_tied = true;
  read_like_llama(f, c, 4);
  read_attention_bias(f, c, false);
  c.ffn_bias = f.flag("mlp_bias", false);
  read_rope_layers(f, c, f.integer("no_rope_layer_interval", 4));
  std::string windows = c.rope_layers;
  std::ranges::replace(windows, 'r', 'f');
  std::ranges::replace(windows, 'n', 'w');
  const bool is_on = f.flag("use_sliding_window", false);
  read_windows(f, c, 0, std::move(windows));
  if (!is_on) c.window = 0;
}

// Reads StableLM, but throws for the parallel form, with one norm for both branches, and for normed
// queries and keys, with weights of their own for each head: no program computes these.
void read_stablelm(ConfigFields& f, ModelConfig& c) {
  c.rope_share = 0.25;
  read_like_llama(f, c, 32, {.most = 4096});
  c.norm_eps = f.real("layer_norm_eps", 1e-5);
  c.norm = NormKind::kLayer;
  c.norm_bias = true;
  c.qkv_bias = f.flag("use_qkv_bias", false);
  f.expect("qk_layernorm", false);
  f.expect("use_parallel_residual", false);
}

}  // namespace tracestep::readers
