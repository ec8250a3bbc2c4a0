// The training loop: batches in, updated weights, a log line per step and checkpoints out.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/enum_words.h"
#include "base/json.h"
#include "base/signals.h"
#include "exec/executor.h"
#include "exec/rank_devices.h"
#include "run/run_spec.h"
#include "tokens/batches.h"
#include "tokens/token_file.h"
#include "train/schedule.h"

namespace tracestep {

class Tokenizer;

// How updated weights in bfloat16 are rounded.
enum class Rounding : std::uint8_t {
  kNearest,
  kRandom,  // Stochastically, so that updates below half a rounding step are not lost.
};
TRACESTEP_WORDS(Rounding, "nearest", "random");
struct TrainOptions {
  RunSpec run;  // The run; it includes the optimizer's weight decay and clipping.
  std::int64_t steps = 200;
  // In one process: the step that is running this many seconds after the first step began is the
  // last one, and the run then ends as after all steps. 0: no limit.
  double seconds = 0;
  // The number of shards whose gradients are summed into a step, in an order that is the same for
  // every number of replicas that divides them; each replica computes its shards one after the
  // other. 0: each replica has one share.
  std::int64_t shards = 0;
  Order order = Order::kShuffled;
  // True: every step uses the inputs of a captured module's example, and no tokens.
  bool on_example = false;
  Schedule schedule;
  Rounding rounding = Rounding::kNearest;
  // The tokenizer of the text; saved beside the weights and in checkpoints. nullptr: not known.
  std::shared_ptr<const Tokenizer> tokenizer = {};
  Json arguments = {};  // The command's options, which checkpoints keep for resuming.
  // The file or folder of initial weights; empty: they are made from the seed.
  std::filesystem::path init = {};
  std::filesystem::path save;        // The file for the final weights; empty: none.
  std::filesystem::path log;         // The file for a JSON line per step; empty: none.
  std::filesystem::path checkpoint;  // The folder for checkpoints; empty: none.
  // A checkpoint after this many steps each; 0: only at the end and on interruption.
  std::int64_t checkpoint_every = 0;
  bool resume = false;  // True: continue from the newest checkpoint, if there is one.
  // True: earlier checkpoints are replaced once the first new one is written.
  bool overwrite = false;
  std::vector<std::string> change;  // Names of fingerprint entries that may differ on resume.
  std::int64_t validate_every = 0;  // A validation after this many steps each; 0: never.
  // How many batches from the beginning of the validation tokens a validation reads; 0: every token
  // once, as evaluate() does.
  std::int64_t validation_batches = 0;
  std::int64_t sample_every = 0;  // A sample of text after this many steps each; 0: never.
  std::vector<std::int64_t> sample_prompt = {};  // The token ids that samples continue.
};

struct TrainStep {
  std::int64_t step = 0;  // counted from 1 in logs and messages
  // The norm is NaN with early updates, which do not compute it.
  double loss = 0.0, grad_norm = 0.0, lr = 0.0;
  // Tokens per second, from the call of the step to its loss and norm. If the device reports these
  // before the update is done (a GPU), a step waits for the update of the step before, so the rate
  // is still that of whole steps, except after a pause (at the first step, a validation, a
  // checkpoint).
  double tokens_per_s = 0.0;
  std::optional<double> validation_loss = {};
  // A sample: the tokens with which the weights after this step continue the prompt.
  std::vector<std::int64_t> sample = {};
  // Under loss scaling: the scale that the step ran with, and the number of steps so far (this one
  // included) that were skipped because a gradient was infinite or NaN.
  std::optional<double> loss_scale = {};
  std::int64_t skipped_steps = 0;
  // The loss or a gradient is infinite or NaN and a smaller loss scale would not help: the step
  // changed nothing and is the last one.
  bool not_finite = false;
};

// A step whose validation loss is known.
struct Validated {
  std::int64_t step = 0;
  double loss = 0.0;
};

// The summary of a finished run, of bounded size: the single steps are only passed to `progress`.
struct TrainResult {
  static constexpr std::size_t kRecentSteps = 1000;

  std::int64_t steps = 0;                 // The number of steps in this run.
  TrainStep first, last;                  // Set if at least one step was trained.
  std::optional<double> validation_loss;  // The validation loss that was measured last.
  // The lowest validation loss, including those before a resume; if there are checkpoints, the one
  // of that step is kept.
  std::optional<Validated> best;
  // Tokens/s of the last kRecentSteps steps, unordered. The first of several steps is left out,
  // because it also prepares what later steps use.
  std::vector<double> recent_rates;
  std::int64_t resumed_from = 0;
  bool interrupted = false;

  void add(const TrainStep& step);
};

// Trains on `tokens` (validation loss on `validation`, if given). `progress` is called after every
// step. Output paths are checked before the first step: a file in the place of `save` that is no
// weights is not replaced, and a folder that already has checkpoints needs `resume` or `overwrite`.
// On resume the log is continued: lines of steps that are trained again are replaced.
//
// Training ends with kNotFinite at a loss, a gradient, a validation loss or a number to be saved
// that is infinite or NaN: the message has the step, the first tensor that is not finite, the
// likely reason, and the last finite checkpoint. The state before that step is saved if it is
// finite.
//
// With `shards`, weights have the same bits for every number of replicas that divides `shards`, and
// for one rank that accumulates `shards` batches; losses are rounded in another order.
//
// A sample is made from a copy of the weights, by the seed: training goes on as without it.
//
// With ranks (RunSpec::parallel), each trains on its rows of every batch; the first one's weights
// are saved, and validated.
//
// Throws Error (kUsage, kInput, kOutput, kNotFinite), OutOfMemory, DeviceError; files already saved
// stay complete.
TrainResult train(const RankDevices& devices, const TrainOptions& options, TokenSourcePtr tokens,
                  TokenSourcePtr validation, const StopSignal* stop,
                  const std::function<void(const TrainStep&)>& progress);
// Trains on one device.
TrainResult train(Device& device, const TrainOptions& options, TokenSourcePtr tokens,
                  TokenSourcePtr validation, const StopSignal* stop,
                  const std::function<void(const TrainStep&)>& progress);

}  // namespace tracestep
