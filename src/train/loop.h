// The training loop: batches in, updated weights, a log line per step and checkpoints out.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

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
  kRandom,  // so that updates below half a rounding are not lost
};
inline constexpr Rounding kAllRoundings[] = {Rounding::kNearest, Rounding::kRandom};
constexpr std::string_view name_of(Rounding rounding) {
  return rounding == Rounding::kNearest ? "nearest" : "random";
}

struct TrainOptions {
  RunSpec run;  // includes the optimizer's weight decay and clip
  std::int64_t steps = 200;
  // In one process: so many seconds after the first step began the one under way is the last, and
  // the run is finished as after all its steps; 0: never.
  double seconds = 0;
  // The batch of a step is the sum of so many shards, in one order for every number of replicas
  // that divides them: each replica runs one after another of its own. 0: replicas have one share
  // each.
  std::int64_t shards = 0;
  Order order = Order::kShuffled;
  // The inputs of every step are those of a captured module's example, and the tokens nothing.
  bool on_example = false;
  Schedule schedule;
  Rounding rounding = Rounding::kNearest;
  // The tokenizer of the text; saved beside the weights and in checkpoints. nullptr: not known.
  std::shared_ptr<const Tokenizer> tokenizer = {};
  Json arguments = {};                // kept in checkpoints for whoever continues the run
  std::filesystem::path init = {};    // weights to start from; empty: from the seed
  std::filesystem::path save;         // weights at the end; empty: nowhere
  std::filesystem::path log;          // one JSON line per step; empty: nowhere
  std::filesystem::path checkpoint;   // folder; empty: none
  std::int64_t checkpoint_every = 0;  // steps; 0: only at the end and when interrupted
  bool resume = false;                // from the newest checkpoint, if there is one
  bool overwrite = false;             // earlier checkpoints, after the first new one
  std::vector<std::string> change;    // entries of the fingerprint that may differ on resume
  std::int64_t validate_every = 0;    // steps; 0: never
  // Batches of the validation tokens, from their beginning, that a validation reads; 0: every token
  // once, as evaluate() does.
  std::int64_t validation_batches = 0;
  std::int64_t sample_every = 0;                 // steps; 0: never
  std::vector<std::int64_t> sample_prompt = {};  // token ids that samples continue
};

struct TrainStep {
  std::int64_t step = 0;                         // counted from 1 in logs and messages
  double loss = 0.0, grad_norm = 0.0, lr = 0.0;  // a NaN where updates are early: no norm is known
  // Measured from the step's call to its loss and norm. Where these come before the update (a GPU),
  // a step waits for the update of the one before, so the rate is that of whole steps, except
  // behind a pause (the first step, a validation, a checkpoint).
  double tokens_per_s = 0.0;
  std::optional<double> validation_loss = {};
  std::vector<std::int64_t> sample = {};  // tokens that the weights of this step continue with
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

  std::int64_t steps = 0;                 // of this run
  TrainStep first, last;                  // set if there are steps
  std::optional<double> validation_loss;  // the last one measured
  // The lowest one, those before a resume included; with checkpoints, that step is kept.
  std::optional<Validated> best;
  // Tokens/s of the last kRecentSteps steps, in no order, without the first step of several: it
  // also makes what all of them use.
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
// With `shards`, weights have the same bits for every such number of replicas, and for one rank
// that accumulates `shards` batches; losses are rounded in another order.
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
