// Readers of config.json by family, and what they share. A reader asks for each field that changes
// the model and refuses values that no program computes. Before it, the config has the sizes of its
// row in nn/families.cpp, which a file may leave out.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "nn/config.h"
#include "nn/config_fields.h"

namespace tracestep::readers {

// The most layers that a file may ask for, as many as a flag (spec/fields).
inline constexpr std::int64_t kMostLayers = 4096;

// --- shared ---

Activation activation_of(ConfigFields& f, std::string_view key, const std::string& usual);

// What a family assumes about positions, and how it names scalings.
struct Lengths {
  std::int64_t most = 2048;    // The default of max_position_embeddings.
  std::int64_t original = 0;   // The original_max_position_embeddings beside it; 0: there is none.
  bool has_old_names = false;  // True: longrope has older names too, "su" and "yarn".
  // True: pairs are divided into sections, for pictures in a text (mrope).
  bool has_sections = false;
};

// Reads rope_theta and rope_scaling, or rope_parameters, which may be separate for layers with a
// window. `lengths`: the family's defaults.
void read_rotation(ConfigFields& f, ModelConfig& c, Lengths lengths = {});

// Reads "layer_types", or uses the family's usual pattern. A null window means that there is none,
// and a missing field means the usual window.
void read_windows(ConfigFields& f, ModelConfig& c, std::int64_t usual_window,
                  std::string usual_layers);

// Reads the sizes by the names that Llama and the families after it use.
void read_sizes(ConfigFields& f, ModelConfig& c);
// Reads what most families store as Llama does. `kv_heads`: the default; 0: as many as heads.
void read_like_llama(ConfigFields& f, ModelConfig& c, std::int64_t kv_heads,
                     const Lengths& lengths = {});
void read_attention_bias(ConfigFields& f, ModelConfig& c, bool usual);

// --- families ---

void read_llama(ConfigFields& f, ModelConfig& c);
void read_mistral(ConfigFields& f, ModelConfig& c);
void read_qwen2(ConfigFields& f, ModelConfig& c);
void read_qwen2_vl(ConfigFields& f, ModelConfig& c);
void read_qwen3(ConfigFields& f, ModelConfig& c);
void read_olmo2(ConfigFields& f, ModelConfig& c);
void read_olmo3(ConfigFields& f, ModelConfig& c);
void read_phi3(ConfigFields& f, ModelConfig& c);
void read_smollm3(ConfigFields& f, ModelConfig& c);
void read_stablelm(ConfigFields& f, ModelConfig& c);
void read_gemma(ConfigFields& f, ModelConfig& c);
void read_gemma2(ConfigFields& f, ModelConfig& c);
void read_gemma3(ConfigFields& f, ModelConfig& c);
void read_starcoder2(ConfigFields& f, ModelConfig& c);
void read_gpt2(ConfigFields& f, ModelConfig& c);
void read_gpt_neox(ConfigFields& f, ModelConfig& c);

}  // namespace tracestep::readers
