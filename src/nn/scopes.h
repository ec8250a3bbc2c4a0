// The scopes in which the parts of a model are built; paths of nodes consist of them
// ("layers.3.attn.softmax"). Code that looks up a part by its path also uses these constants, so a
// name is changed in one place.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "ir/layer_path.h"
#include "nn/config.h"

namespace tracestep::scope {

inline constexpr std::string_view kEmbedding = "token_embeddings", kHead = "lm_head",
                                  kAttention = "attn", kFeedForward = "ffn", kFirstNorm = "ln1",
                                  kGate = "w1", kSwiglu = "swiglu", kActivation = "act";
// The parts of attention (ops/attention.cpp), inside the scope in which it is built.
inline constexpr std::string_view kScores = "scores", kSoftmax = "softmax", kValues = "values";

// Joins scopes to a path: "attn.softmax".
inline std::string path(std::initializer_list<std::string_view> scopes) {
  std::string out;
  for (std::string_view scope : scopes) {
    if (!out.empty()) out += '.';
    out += scope;
  }
  return out;
}

// Returns the scope of a layer: "layers.3".
inline std::string layer(std::int64_t index) {
  return layer_path(index);
}

// Returns the scope of a feed-forward's activation.
inline std::string_view of_activation(const ModelConfig& model) {
  return model.is_gated && model.activation == Activation::kSilu ? kSwiglu : kActivation;
}

}  // namespace tracestep::scope
