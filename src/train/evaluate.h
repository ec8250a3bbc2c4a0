// Computes the loss of a text with given weights.
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
  // How many sequential batches to average over; 0: enough to read every token once. For the
  // remaining tokens, the last batches have fewer rows, or one short row.
  std::int64_t batches = 0;
  std::filesystem::path logits =
      {};  // A safetensors file for "logits" [B,T,V] of the first batch; empty: none.
  std::filesystem::path gradients = {};  // A file for the first batch's gradients; empty: none.
  // The file with inputs for a captured module, if there is no text; empty: the one in its folder.
  std::filesystem::path inputs = {};
  // The tokenizer of the text, to count the bytes of its tokens; nullptr: not known.
  std::shared_ptr<const Tokenizer> tokenizer = {};
};

struct EvalResult {
  double loss = 0.0;
  double perplexity = 0.0;
  double first_batch_loss = 0.0;
  std::int64_t batches = 0, tokens = 0;
  // The bytes of text of all targets, and the loss per byte; nullopt if they are not known.
  std::optional<std::int64_t> bytes;
  std::optional<double> bits_per_byte;
  // The first weight, result or gradient that is infinite or NaN, if any.
  std::optional<NotFinite> not_finite;
};

// Evaluates the weights. Weights that are not finite are no error: `not_finite` of the result names
// them. `before_batch` is called before each batch with the number of batches. Without `tokens`, a
// captured module is evaluated on its example as the only batch.
EvalResult evaluate(Device& device, const EvalOptions& options, TokenSourcePtr tokens,
                    const std::function<void(std::int64_t batches)>& before_batch = {});

}  // namespace tracestep
