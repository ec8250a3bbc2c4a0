// The loss of a text under given weights.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>

#include "run/run_spec.h"
#include "runtime/device.h"
#include "tokens/token_file.h"
#include "tokens/tokenizer.h"
#include "weights/not_finite.h"

namespace tracestep {

struct EvalOptions {
  RunSpec run = {};
  std::filesystem::path init = {};
  // Sequential batches to average over; 0: every token once. Where tokens are left over, the last
  // batches have fewer rows, or one short row.
  std::int64_t batches = 0;
  std::filesystem::path logits =
      {};  // safetensors "logits" [B,T,V] of the first batch; empty: none
  std::filesystem::path gradients = {};  // the first batch's gradients; empty: none
  // The inputs of a captured module without a text; empty: those of its folder.
  std::filesystem::path inputs = {};
  // The tokenizer of the text, to count the bytes of its tokens; nullptr: not known.
  std::shared_ptr<const Tokenizer> tokenizer = {};
};

struct EvalResult {
  double loss = 0.0;
  double perplexity = 0.0;
  double first_batch_loss = 0.0;
  std::int64_t batches = 0, tokens = 0;
  // The bytes of the text of all targets, and the loss per byte; nullopt where it is not known.
  std::optional<std::int64_t> bytes;
  std::optional<double> bits_per_byte;
  // The first weight, result or gradient that is infinite or NaN, if any.
  std::optional<NotFinite> not_finite;
};

// Weights that are not finite are no error: the result's `not_finite` names them.
// `before_batch` is called before each, with their number. Without `tokens`, for a captured module,
// its example is the one batch.
EvalResult evaluate(Device& device, const EvalOptions& options, TokenSourcePtr tokens,
                    const std::function<void(std::int64_t batches)>& before_batch = {});

}  // namespace tracestep
