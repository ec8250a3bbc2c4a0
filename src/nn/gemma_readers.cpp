#include <algorithm>
#include <cmath>

#include "nn/family_readers.h"

namespace tracestep::readers {
namespace {

// Sets the fields that all Gemmas share.
void read_any_gemma(ConfigFields& f, ModelConfig& c, std::int64_t kv_heads) {
  c.norm_eps = 1e-6;
  c.head_size = 256;
  c.is_tied = true;
  c.norm_offset = 1.0;
  read_like_llama(f, c, kv_heads);
  read_attention_bias(f, c, false);
  c.embedding_scale = std::sqrt(static_cast<double>(c.d_model));
  f.expect("use_bidirectional_attention", false);
}

void read_like_gemma(ConfigFields& f, ModelConfig& c) {
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

}  // namespace

// Reads gemma, whose first files say gelu but mean its form by tanh, as a later field confirms.
void read_gemma(ConfigFields& f, ModelConfig& c) {
  read_any_gemma(f, c, 16);
  c.activation = activation_of(f, "hidden_act", "gelu_pytorch_tanh");
  if (c.activation == Activation::kGelu) c.activation = Activation::kGeluTanh;
  if (f.find("hidden_activation") != nullptr) {
    c.activation = activation_of(f, "hidden_activation", "gelu_pytorch_tanh");
  }
}

void read_gemma2(ConfigFields& f, ModelConfig& c) {
  // A null says that there is no cap, a missing field that it is the usual one.
  if (f.json().find("attn_logit_softcapping") == nullptr) c.score_cap = 50.0;
  if (f.json().find("final_logit_softcapping") == nullptr) c.logit_cap = 30.0;
  read_like_gemma(f, c);
  read_windows(f, c, 4096, "wf");
  if (f.integer("sliding_window_size", std::max<std::int64_t>(c.window, 1)) != c.window) {
    f.fail("sliding_window_size", "that of sliding_window, which is the one that counts,");
  }
}

void read_gemma3(ConfigFields& f, ModelConfig& c) {
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

}  // namespace tracestep::readers
