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
  std::string device = "cpu";            // "cpu", "cuda:1"
  int threads = 0;                       // 0: OMP_NUM_THREADS, else all allowed cores
  std::int64_t memory_limit_bytes = 0;   // 0: none; or as run/memory_limit.h says
  bool deterministic = false;            // refuses kernels that may not repeat bit for bit
  bool tune = false;                     // times kernels for products without a stored choice
  std::filesystem::path tune_file = {};  // empty: the default of tuning_path()
  // The folder of kernels compiled at run time; empty: as the environment says.
  std::filesystem::path kernel_cache = {};

  bool is_tuned() const { return tune || !tune_file.empty(); }
  // The file that stores the chosen kernels.
  std::filesystem::path tuning_path() const {
    return tune_file.empty() ? "tracestep-tuning.json" : tune_file;
  }
};

// Every field that a flag of all commands can set has a row in the table of spec/fields.h.
struct RunSpec {
  ModelConfig model = {};
  BatchShape shape = {};  // of a micro-batch, where a step has several
  // Micro-batches of a step, one after the other, which add up their gradients before the update.
  std::int64_t accumulate = 1;
  Mode mode = Mode::kStep;
  LossKind loss = LossKind::kCrossEntropy;
  // What of the model is trained: adapters alone, or all but its frozen parts.
  Adapters lora = {};
  FrozenParts frozen = {};
  Precision precision = {};
  Float8Products fp8_products = Float8Products::kPaying;
  Float8Scaling fp8_scaling = Float8Scaling::kDelayed;  // of steps on one rank; else current
  Granularity ops = Granularity::kFused;
  AttentionForm attention = AttentionForm::kNaive;
  ExecutorKind executor = ExecutorKind::kEager;
  // The passes of compile_passes() that run; nullopt: with an arena those that pay, else none.
  std::optional<std::set<std::string>> compile_passes = {};
  LaunchOrder launch_order = LaunchOrder::kSerial;
  UpdateTime updates = UpdateTime::kEnd;
  Offload offload = Offload::kNone;
  GradientSums grad_accum_dtype = GradientSums::kF32;  // of steps in micro-batches
  Recomputation recompute = {};
  // Some targets do not count (nn/transformer.h); those of packed rows never do all.
  bool masks_targets = false;
  bool packed = false;  // rows of whole documents side by side, which do not see each other
  // Parts that the loss, and feed-forwards, are computed in; 0: as many as pay.
  std::int64_t loss_chunks = 1, ffn_chunks = 1;
  // The batch is divided among the replicas: `shape` is the whole one.
  Parallel parallel = {};
  GradientKind gradients = GradientKind::kTransient;
  OptimizerOptions optimizer = {};
  std::uint64_t seed = 0;  // of weights, batches and sampling
  Place place = {};
  bool verify = false;  // programs after every pass
};

}  // namespace tracestep
