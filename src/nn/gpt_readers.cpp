#include "nn/family_readers.h"

namespace tracestep::readers {

void read_starcoder2(ConfigFields& f, ModelConfig& c) {
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

void read_gpt2(ConfigFields& f, ModelConfig& c) {
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

void read_gpt_neox(ConfigFields& f, ModelConfig& c) {
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

}  // namespace tracestep::readers
