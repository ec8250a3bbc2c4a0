// Continues a text with a model, token by token.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <vector>

#include "base/signals.h"
#include "run/run_spec.h"
#include "runtime/device.h"
#include "runtime/store.h"
#include "train/sampling.h"

namespace tracestep {

struct GenerateOptions {
  // `shape.context` limits the whole text, including the prompt.
  RunSpec run = {.shape = {.batch = 1, .context = 256}};
  std::filesystem::path init = {};
  std::vector<std::int64_t> prompt;  // token ids; at least one
  std::int64_t tokens = 128;         // The number of tokens to sample.
  Sampling sampling = {};
};

// Samples with a KV cache: the prompt in runs of up to 128 tokens, then one token per run; `emit`
// gets each new token. Stops when the context is full. `load` fills the weights; without it they
// are those of `init`. Errors: kNotFinite for weights or logits that are infinite or NaN.
std::vector<std::int64_t> generate(Device& device, const GenerateOptions& options,
                                   const StopSignal* stop,
                                   const std::function<void(std::int64_t)>& emit,
                                   const std::function<void(Store&)>& load = {});

}  // namespace tracestep
