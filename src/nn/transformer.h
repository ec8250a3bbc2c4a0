// The Llama-like language model: token embedding; per layer x += attn(rms_norm(x)),
// x += ffn(rms_norm(x)); final norm; untied head; no biases. It only builds programs.
//
// Tensor names: token_embeddings.weight, layers.{i}.ln1.weight,
// layers.{i}.attn.{q,k,v,output}_proj.weight, layers.{i}.ln2.weight,
// layers.{i}.ffn.{w1,w2,w3}.weight, ln_final.weight, lm_head.weight; weights are [out, in].
#pragma once

#include "ir/builder.h"
#include "nn/config.h"

namespace tracestep {

// tokens: i64 [B,T] → logits [B,T,V].
Val transformer_lm(Builder& b, const ModelConfig& config, Val tokens);

struct BatchShape {
  std::int64_t batch = 4;      // B
  std::int64_t context = 128;  // T
};

// Input "tokens" [B,T]; output "logits" [B,T,V].
Program logits_program(const ModelConfig& config, BatchShape shape);
// Inputs "tokens", "targets" [B,T]; output "loss": mean cross-entropy. With `with_logits` also
// the output "logits". `loss_scale` multiplies what is differentiated (gradient accumulation);
// the output "loss" is then the scaled value.
Program loss_program(const ModelConfig& config, BatchShape shape, bool with_logits = false,
                     double loss_scale = 1.0);
// One token at a time: inputs "tokens" [B,1] and "position" (rank-0 i64); states
// "cache.{i}.k", "cache.{i}.v" [B,H,T,D]; output "logits" [B,1,V].
Program decode_program(const ModelConfig& config, BatchShape shape);

}  // namespace tracestep
