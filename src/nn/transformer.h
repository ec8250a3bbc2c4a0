// A decoder-only language model as its record says (nn/config.h): token embedding; per layer
// x += attn(norm(x)), x += ffn(norm(x)), or another order of these; final norm; head. It only
// builds programs.
//
// Tensor names: token_embeddings.weight, layers.{i}.ln1.weight,
// layers.{i}.attn.{q,k,v,output}_proj.weight, layers.{i}.ln2.weight,
// layers.{i}.ffn.{w1,w2,w3}.weight, ln_final.weight, lm_head.weight; weights are [out, in]. Where a
// model has them: {…}.bias beside a weight, position_embeddings.weight, attn.{q,k}_norm.weight, and
// ln{1,2}_after.weight of norms after the branches; the weight of a norm that adds an offset to it
// is called {…}.deviation.
#pragma once

#include "base/dtype.h"
#include "base/enum_words.h"
#include "ir/builder.h"
#include "nn/config.h"
#include "nn/scopes.h"

namespace tracestep {

// Returns the logits of tokens: i64 [B,T] → [B,T,V]. `weights`: the dtype of stored parameters.
Val transformer_lm(Builder& b, const ModelConfig& config, Val tokens, DType weights = DType::kF32);

struct BatchShape {
  std::int64_t batch = 4;      // B
  std::int64_t context = 128;  // T
};

// Returns the forward program: input "tokens" [B,T]; output "logits" [B,T,V].
Program logits_program(const ModelConfig& config, BatchShape shape, DType weights = DType::kF32);

// The loss from which backward starts.
enum class LossKind : std::uint8_t {
  kCrossEntropy,  // The mean over all tokens of the loss on "targets".
  kLogitSum,      // The sum of all logits, for benchmarks without targets.
};
TRACESTEP_WORDS(LossKind, "cross-entropy", "sum-of-logits");

// The input by which losses are divided if some targets do not count, namely those that are -100.
inline constexpr std::string_view kLossCount = "loss_count";
// Inputs of packed rows, i64 [B,T]: where in its row the document at each position begins and ends.
inline constexpr std::string_view kDocumentStarts = "starts", kDocumentEnds = "ends";

struct LossOptions {
  LossKind kind = LossKind::kCrossEntropy;
  // True: some targets do not count, and the loss is divided by kLossCount.
  bool masks_targets = false;
  // True: rows hold documents, which do not see each other; implies masks_targets.
  bool packed = false;
  bool with_logits = false;  // True: the program also has the output "logits".
  // A factor on the loss before differentiation, for accumulating gradients; the output "loss" has
  // it too.
  double scale = 1.0;
  DType weights = DType::kF32;
};
// Returns the program of the loss: inputs "tokens", perhaps "targets" [B,T]; output "loss".
Program loss_program(const ModelConfig& config, BatchShape shape, const LossOptions& options = {});
// The most tokens in a run of decode_program() if caches slide.
inline constexpr std::int64_t kDecodedAtOnce = 128;
// The caches of layers with a window, for a text of `context` tokens: how many tokens they hold.
// When they are full, slide_program() moves the last `kept` tokens to the beginning. Both are
// multiples of kDecodedAtOnce, so runs that begin at multiples of it never cross the end.
struct WindowedCache {
  std::int64_t length, kept;
  bool slides() const { return kept < length; }
};
WindowedCache windowed_cache(const ModelConfig& config, std::int64_t context);
Program slide_program(const ModelConfig& config, BatchShape shape, DType weights = DType::kF32);

// Returns a program that decodes `count` = n tokens per run: inputs "tokens" [B,n], "position" of
// the first token (rank-0 i64), if caches slide "windowed_position", its position in the caches of
// layers with a window, and for n > 1 "positions" [n] of all tokens; states "cache.{i}.k" and ".v"
// [B,H,T,D], T the context or the length of windowed_cache(); output "logits" [B,1,V] of the last.
Program decode_program(const ModelConfig& config, BatchShape shape, DType weights = DType::kF32,
                       std::int64_t count = 1);

// Decoding without the host: each run takes a token and its position from states, and leaves there,
// for the next run, the most likely next token and its position. `kGreedyText` [T] gets the next
// token at the position of the one before, or -1 where a logit is infinite or NaN. One sequence;
// caches are those of decode_program(), which can read a prompt first.
inline constexpr std::string_view kGreedyToken = "greedy.token",
                                  kGreedyPosition = "greedy.position",
                                  kGreedyWindowedPosition = "greedy.windowed_position",
                                  kGreedyText = "greedy.text";
Program greedy_program(const ModelConfig& config, BatchShape shape, DType weights = DType::kF32);

}  // namespace tracestep
