// The scopes that the parts of a model are built in, from which the paths of its nodes are made
// ("layers.3.attn.softmax"). Code that looks a part up by its path uses these constants too, so a
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
// The parts of attention (ops/attention.cpp), inside whatever scope it is built in.
inline constexpr std::string_view kScores = "scores", kSoftmax = "softmax", kValues = "values";

// "attn.softmax"
inline std::string path(std::initializer_list<std::string_view> scopes) {
  std::string out;
  for (std::string_view scope : scopes) {
    if (!out.empty()) out += '.';
    out += scope;
  }
  return out;
}

// "layers.3"
inline std::string layer(std::int64_t index) {
  return layer_path(index);
}

// The part of a feed-forward that its activation is built in.
inline std::string_view of_activation(const ModelConfig& model) {
  return model.is_gated && model.activation == Activation::kSilu ? kSwiglu : kActivation;
}

}  // namespace tracestep::scope
