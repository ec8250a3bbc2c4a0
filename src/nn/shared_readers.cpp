#include <algorithm>

#include "nn/family_readers.h"

namespace tracestep::readers {

Activation activation_of(ConfigFields& f, std::string_view key, const std::string& usual) {
  const std::string name = f.text(key, usual);
  if (name == "silu" || name == "swish") return Activation::kSilu;
  if (name == "gelu") return Activation::kGelu;
  if (name == "gelu_new" || name == "gelu_pytorch_tanh" || name == "gelu_fast") {
    return Activation::kGeluTanh;
  }
  if (name == "relu") return Activation::kRelu;
  f.fail(key, "silu, gelu, gelu_new, gelu_pytorch_tanh or relu");
}

void read_windows(ConfigFields& f, ModelConfig& c, std::int64_t usual_window,
                  std::string usual_layers) {
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

void read_sizes(ConfigFields& f, ModelConfig& c) {
  c.vocab = f.integer("vocab_size", c.vocab);
  c.d_model = f.integer("hidden_size", c.d_model);
  c.d_ff = f.integer("intermediate_size", c.d_ff);
  c.layers = f.integer("num_hidden_layers", c.layers, kMostLayers);
  c.heads = f.integer("num_attention_heads", c.heads);
  c.is_tied = f.flag("tie_word_embeddings", c.is_tied);
}

void read_like_llama(ConfigFields& f, ModelConfig& c, std::int64_t kv_heads,
                     const Lengths& lengths) {
  read_sizes(f, c);
  // A null says that all heads have their own, a missing field that the number is the usual one.
  const bool is_usual = kv_heads > 0 && f.json().find("num_key_value_heads") == nullptr;
  c.kv_heads = f.integer("num_key_value_heads", is_usual ? kv_heads : c.heads);
  c.head_size = f.find("head_dim") != nullptr ? f.integer("head_dim", 1) : c.head_size;
  c.norm_eps = f.real("rms_norm_eps", c.norm_eps);
  c.activation = activation_of(f, "hidden_act", "silu");
  read_rotation(f, c, lengths);
}

void read_attention_bias(ConfigFields& f, ModelConfig& c, bool usual) {
  c.qkv_bias = c.output_bias = f.flag("attention_bias", usual);
}

}  // namespace tracestep::readers
