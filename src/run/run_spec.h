// The specification of a run: everything that decides its program, its numbers, its speed and its
// place. How it is measured or trained is specified separately.
#pragma once

#include <filesystem>
#include <optional>
#include <set>
#include <string>

#include "base/precision.h"
#include "nn/transformer.h"
#include "run/adapters.h"
#include "run/granularity.h"
#include "run/optimizer_options.h"
#include "run/parallel.h"
#include "run/recomputation.h"
#include "run/words.h"

namespace tracestep {

// True if training in this precision scales the loss: the exponent range of float16 is too small
// for gradients.
inline bool scales_loss(const Precision& precision) {
  return precision.autocast == DType::kF16;
}

// Where a run takes place.
struct Place {
  std::string device = "cpu";  // "cpu", "cuda:1"
  int threads = 0;             // The threads; 0: OMP_NUM_THREADS, else all allowed cores.
  // The memory limit; 0: none; other values as in run/memory_limit.h.
  std::int64_t memory_limit_bytes = 0;
  bool deterministic = false;  // True: kernels that may not repeat bit for bit are refused.
  // True: kernels of products without a stored choice are timed and the fastest is chosen.
  bool tune = false;
  // The file with stored choices of kernels; empty: the default of tuning_path().
  std::filesystem::path tune_file = {};
  // The folder of kernels that are compiled at run time; empty: the environment's
  // (TRACESTEP_KERNEL_CACHE).
  std::filesystem::path kernel_cache = {};

  bool is_tuned() const { return tune || !tune_file.empty(); }
  // Returns the file that stores the chosen kernels.
  std::filesystem::path tuning_path() const {
    return tune_file.empty() ? "tracestep-tuning.json" : tune_file;
  }
};

// What a run is. spec/fields.h has a row for each field that a flag of all commands can set.
struct RunSpec {
  ModelConfig model = {};
  BatchShape shape = {};  // The shape of a micro-batch if a step has several.
  // How many micro-batches a step has; they run one after the other and accumulate gradients before
  // the update.
  std::int64_t accumulate = 1;
  Mode mode = Mode::kStep;
  LossKind loss = LossKind::kCrossEntropy;
  // The trained part of the model: adapters only, or everything except frozen parts.
  Adapters lora = {};
  FrozenParts frozen = {};
  Precision precision = {};
  Float8Products fp8_products = Float8Products::kPaying;
  // How `fp8` chooses scales in steps on one rank; other runs use current scaling.
  Float8Scaling fp8_scaling = Float8Scaling::kDelayed;
  Granularity ops = Granularity::kFused;
  AttentionForm attention = AttentionForm::kNaive;
  ExecutorKind executor = ExecutorKind::kEager;
  // The compile passes to run, among those of compile_passes(); nullopt: with an arena those that
  // pay, else none.
  std::optional<std::set<std::string>> compile_passes = {};
  LaunchOrder launch_order = LaunchOrder::kSerial;
  UpdateTime updates = UpdateTime::kEnd;
  Offload offload = Offload::kNone;
  GradientSums grad_accum_dtype = GradientSums::kF32;  // of steps in micro-batches
  Recomputation recompute = {};
  // True: the loss of some targets does not count (nn/transformer.h). Packed rows always have such
  // targets.
  bool masks_targets = false;
  // True: a row holds whole documents side by side, and attention does not cross them.
  bool packed = false;
  // The number of chunks in which the loss, and the feed-forwards, are computed; 0: chosen
  // automatically.
  std::int64_t loss_chunks = 1, ffn_chunks = 1;
  // How ranks share the step. `shape` is the whole batch, which replicas divide.
  Parallel parallel = {};
  GradientKind gradients = GradientKind::kTransient;
  OptimizerOptions optimizer = {};
  std::uint64_t seed = 0;  // The seed of weights, batches and sampling.
  Place place = {};
  bool verify = false;  // True: the program is verified after every pass.
};

}  // namespace tracestep
