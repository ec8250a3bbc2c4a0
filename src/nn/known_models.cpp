// Published models by name. Sizes are those of their config.json; tests/nn/known_models_test.cpp
// holds the numbers of parameters against those that transformers counts.
#include <cmath>

#include "nn/families.h"

namespace tracestep {
namespace {

struct Sizes {
  const char* name;
  std::int64_t vocab, d_model, d_ff, layers, heads, kv_heads, head_size;
};

ModelConfig sized(const Sizes& s) {
  ModelConfig c{.name = s.name,
                .vocab = s.vocab,
                .d_model = s.d_model,
                .d_ff = s.d_ff,
                .layers = s.layers,
                .heads = s.heads,
                .kv_heads = s.kv_heads,
                .head_size = s.head_size};
  return normalised(std::move(c));
}

// Collects models. `positions` is a model's max_position_embeddings.
class Table {
 public:
  template <class Change>
  void add(std::string_view family, std::int64_t positions, const Sizes& sizes, Change change) {
    ModelConfig c = sized(sizes);
    change(c);
    rows_.push_back({family, std::move(c), positions});
  }
  std::vector<KnownModel> take() { return std::move(rows_); }

 private:
  std::vector<KnownModel> rows_;
};

void add_llamas(Table& t) {
  const auto llama = [&t](std::int64_t positions, const Sizes& s, double theta, double factor,
                          bool is_tied = false) {
    t.add("llama", positions, s, [&](ModelConfig& c) {
      c.norm_eps = 1e-5;
      c.rope_theta = theta;
      c.is_tied = is_tied;
      if (factor > 1) c.rope_scaling = {RopeScalingKind::kLlama3, factor, 1, 4, 8192, 1};
    });
  };
  llama(4096, {"llama-2-7b", 32000, 4096, 11008, 32, 32, 32, 128}, 1e4, 1);
  llama(4096, {"llama-2-13b", 32000, 5120, 13824, 40, 40, 40, 128}, 1e4, 1);
  llama(4096, {"llama-2-70b", 32000, 8192, 28672, 80, 64, 8, 128}, 1e4, 1);
  llama(8192, {"llama-3-8b", 128256, 4096, 14336, 32, 32, 8, 128}, 5e5, 1);
  llama(8192, {"llama-3-70b", 128256, 8192, 28672, 80, 64, 8, 128}, 5e5, 1);
  llama(131072, {"llama-3.1-8b", 128256, 4096, 14336, 32, 32, 8, 128}, 5e5, 8);
  llama(131072, {"llama-3.1-70b", 128256, 8192, 28672, 80, 64, 8, 128}, 5e5, 8);
  llama(131072, {"llama-3.1-405b", 128256, 16384, 53248, 126, 128, 8, 128}, 5e5, 8);
  llama(131072, {"llama-3.2-1b", 128256, 2048, 8192, 16, 32, 8, 64}, 5e5, 32, true);
  llama(131072, {"llama-3.2-3b", 128256, 3072, 8192, 28, 24, 8, 128}, 5e5, 32, true);
  llama(8192, {"smollm2-135m", 49152, 576, 1536, 30, 9, 3, 64}, 1e5, 1, true);
  llama(8192, {"smollm2-360m", 49152, 960, 2560, 32, 15, 5, 64}, 1e5, 1, true);
  llama(8192, {"smollm2-1.7b", 49152, 2048, 8192, 24, 32, 32, 64}, 1.3e5, 1, true);
}

void add_mistrals(Table& t) {
  t.add("mistral", 32768, {"mistral-7b-v0.1", 32000, 4096, 14336, 32, 32, 8, 128},
        [](ModelConfig& c) { c.window = 4096; });
  t.add("mistral", 32768, {"mistral-7b-v0.3", 32768, 4096, 14336, 32, 32, 8, 128},
        [](ModelConfig& c) { c.rope_theta = 1e6; });
}

void add_qwens(Table& t) {
  const auto qwen2 = [&t](std::int64_t positions, const Sizes& s, bool is_tied, double eps = 1e-6) {
    t.add("qwen2", positions, s, [&](ModelConfig& c) {
      c.rope_theta = 1e6;
      c.norm_eps = eps;
      c.qkv_bias = true;
      c.is_tied = is_tied;
    });
  };
  qwen2(32768, {"qwen2.5-0.5b", 151936, 896, 4864, 24, 14, 2, 64}, true);
  qwen2(131072, {"qwen2.5-1.5b", 151936, 1536, 8960, 28, 12, 2, 128}, true);
  qwen2(32768, {"qwen2.5-3b", 151936, 2048, 11008, 36, 16, 2, 128}, true);
  qwen2(131072, {"qwen2.5-7b", 152064, 3584, 18944, 28, 28, 4, 128}, false);
  qwen2(131072, {"qwen2.5-14b", 152064, 5120, 13824, 48, 40, 8, 128}, false, 1e-5);
  qwen2(131072, {"qwen2.5-32b", 152064, 5120, 27648, 64, 40, 8, 128}, false, 1e-5);
  qwen2(131072, {"qwen2.5-72b", 152064, 8192, 29568, 80, 64, 8, 128}, false);
  const auto qwen3 = [&t](const Sizes& s, bool is_tied) {
    t.add("qwen3", 40960, s, [&](ModelConfig& c) {
      c.rope_theta = 1e6;
      c.norm_eps = 1e-6;
      c.qk_norm = QkNorm::kHead;
      c.is_tied = is_tied;
    });
  };
  qwen3({"qwen3-0.6b", 151936, 1024, 3072, 28, 16, 8, 128}, true);
  qwen3({"qwen3-1.7b", 151936, 2048, 6144, 28, 16, 8, 128}, true);
  qwen3({"qwen3-4b", 151936, 2560, 9728, 36, 32, 8, 128}, true);
  qwen3({"qwen3-8b", 151936, 4096, 12288, 36, 32, 8, 128}, false);
  qwen3({"qwen3-14b", 151936, 5120, 17408, 40, 40, 8, 128}, false);
  qwen3({"qwen3-32b", 151936, 5120, 25600, 64, 64, 8, 128}, false);
}

void add_gemmas(Table& t) {
  // `width`: query_pre_attn_scalar.
  const auto gemma = [](ModelConfig& c, double width) {
    c.norm_eps = 1e-6;
    c.norm_offset = 1;
    c.norm_place = NormPlace::kBoth;
    c.activation = Activation::kGeluTanh;
    c.is_tied = true;
    c.embedding_scale = std::sqrt(static_cast<double>(c.d_model));
    if (width != static_cast<double>(c.head_width())) c.score_scale = 1 / std::sqrt(width);
  };
  const auto gemma2 = [&](const Sizes& s, double width) {
    t.add("gemma2", 8192, s, [&](ModelConfig& c) {
      gemma(c, width);
      c.window = 4096;
      c.window_layers = "wf";
      c.score_cap = 50;
      c.logit_cap = 30;
    });
  };
  gemma2({"gemma-2-2b", 256000, 2304, 9216, 26, 8, 4, 256}, 256);
  gemma2({"gemma-2-9b", 256000, 3584, 14336, 42, 16, 8, 256}, 256);
  gemma2({"gemma-2-27b", 256000, 4608, 36864, 46, 32, 16, 128}, 144);
  const auto gemma3 = [&](const Sizes& s, double width, std::int64_t window, double factor) {
    const std::int64_t positions = factor > 1 ? 131072 : 32768;
    t.add("gemma3_text", positions, s, [&](ModelConfig& c) {
      gemma(c, width);
      c.qk_norm = QkNorm::kHead;
      c.rope_theta = 1e6;
      c.rope_theta_windowed = 1e4;
      c.window = window;
      c.window_layers = "wwwwwf";
      if (factor > 1) c.rope_scaling = {RopeScalingKind::kLinear, factor, 1, 4, 8192, 1};
    });
  };
  gemma3({"gemma-3-270m", 262144, 640, 2048, 18, 4, 1, 256}, 256, 512, 1);
  gemma3({"gemma-3-1b", 262144, 1152, 6912, 26, 4, 1, 256}, 256, 512, 1);
  gemma3({"gemma-3-4b", 262208, 2560, 10240, 34, 8, 4, 256}, 256, 1024, 8);
  gemma3({"gemma-3-12b", 262208, 3840, 15360, 48, 16, 8, 256}, 256, 1024, 8);
  gemma3({"gemma-3-27b", 262208, 5376, 21504, 62, 32, 16, 128}, 168, 1024, 8);
}

void add_olmos(Table& t) {
  const auto olmo2 = [&t](const Sizes& s) {
    t.add("olmo2", 4096, s, [](ModelConfig& c) {
      c.norm_eps = 1e-6;
      c.rope_theta = 5e5;
      c.norm_place = NormPlace::kAfter;
      c.qk_norm = QkNorm::kToken;
    });
  };
  olmo2({"olmo-2-1b", 100352, 2048, 8192, 16, 16, 16, 128});
  olmo2({"olmo-2-7b", 100352, 4096, 11008, 32, 32, 32, 128});
  olmo2({"olmo-2-13b", 100352, 5120, 13824, 40, 40, 40, 128});
  olmo2({"olmo-2-32b", 100352, 5120, 27648, 64, 40, 8, 128});
}

void add_stablelms(Table& t) {
  const auto stablelm = [&t](const Sizes& s, bool has_bias) {
    t.add("stablelm", 4096, s, [&](ModelConfig& c) {
      c.norm = NormKind::kLayer;
      c.norm_bias = true;
      c.qkv_bias = has_bias;
      c.rope_share = 0.25;
    });
  };
  stablelm({"stablelm-3b", 50304, 2560, 6912, 32, 32, 32, 80}, false);
  stablelm({"stablelm-2-1.6b", 100352, 2048, 5632, 24, 32, 32, 64}, true);
}

void add_phis(Table& t) {
  t.add("phi3", 4096, {"phi-3-mini", 32064, 3072, 8192, 32, 32, 32, 96},
        [](ModelConfig& c) { c.window = 2047; });
  t.add("phi3", 4096, {"phi-3-medium", 32064, 5120, 17920, 40, 40, 10, 128},
        [](ModelConfig& c) { c.window = 2047; });
  t.add("phi3", 16384, {"phi-4", 100352, 5120, 17920, 40, 40, 10, 128},
        [](ModelConfig& c) { c.rope_theta = 250000; });
}

void add_gpts(Table& t) {
  const auto biased = [](ModelConfig& c, bool is_tied, Activation activation) {
    c.norm = NormKind::kLayer;
    c.norm_bias = c.qkv_bias = c.output_bias = c.ffn_bias = true;
    c.is_gated = false;
    c.is_tied = is_tied;
    c.activation = activation;
  };
  const auto gpt2 = [&](const char* name, std::int64_t width, std::int64_t layers,
                        std::int64_t heads) {
    t.add("gpt2", 1024, {name, 50257, width, 4 * width, layers, heads, heads, 64},
          [&](ModelConfig& c) {
            biased(c, true, Activation::kGeluTanh);
            c.positions = Positions::kLearned;
            c.max_positions = 1024;
          });
  };
  gpt2("gpt2", 768, 12, 12);
  gpt2("gpt2-medium", 1024, 24, 16);
  gpt2("gpt2-large", 1280, 36, 20);
  gpt2("gpt2-xl", 1600, 48, 25);
  const auto pythia = [&](const char* name, std::int64_t vocab, std::int64_t width,
                          std::int64_t layers, std::int64_t heads) {
    t.add("gpt_neox", 2048, {name, vocab, width, 4 * width, layers, heads, heads, width / heads},
          [&](ModelConfig& c) {
            biased(c, false, Activation::kGelu);
            c.rope_share = 0.25;
            c.is_parallel = true;
          });
  };
  pythia("pythia-70m", 50304, 512, 6, 8);
  pythia("pythia-160m", 50304, 768, 12, 12);
  pythia("pythia-410m", 50304, 1024, 24, 16);
  pythia("pythia-1b", 50304, 2048, 16, 8);
  pythia("pythia-1.4b", 50304, 2048, 24, 16);
  pythia("pythia-2.8b", 50304, 2560, 32, 32);
  pythia("pythia-6.9b", 50432, 4096, 32, 32);
  pythia("pythia-12b", 50688, 5120, 36, 40);
}

}  // namespace

const std::vector<KnownModel>& known_models() {
  static const std::vector<KnownModel> all = [] {
    Table table;
    add_llamas(table);
    add_mistrals(table);
    add_qwens(table);
    add_gemmas(table);
    add_olmos(table);
    add_stablelms(table);
    add_phis(table);
    add_gpts(table);
    return table.take();
  }();
  return all;
}

}  // namespace tracestep
