// What a run is: everything that decides its program, its numbers, its speed and its place. How it
// is measured or trained is said elsewhere, beside it.
#pragma once

#include <filesystem>
#include <string>

#include "base/precision.h"
#include "exec/executor_kind.h"
#include "nn/transformer.h"
#include "passes/pipeline.h"

namespace tracestep {

// Where a run takes place.
struct Place {
  std::string device = "cpu";            // "cpu", "cuda:1"
  int threads = 0;                       // 0: OMP_NUM_THREADS, else all allowed cores
  std::int64_t memory_limit_bytes = 0;   // 0: none
  bool deterministic = false;            // refuses what may give other bits when run again
  bool tune = false;                     // times candidates of products that have no choice yet
  std::filesystem::path tune_file = {};  // empty: that of tuning_path()

  bool is_tuned() const { return tune || !tune_file.empty(); }
  // Where choices are kept.
  std::filesystem::path tuning_path() const {
    return tune_file.empty() ? "tracestep-tuning.json" : tune_file;
  }
};

// What flags of every command can set has a row in the table of spec/fields.h.
struct RunSpec {
  ModelConfig model = {};
  BatchShape shape = {};
  Mode mode = Mode::kStep;
  Precision precision = {};
  Granularity ops = Granularity::kFused;
  AttentionForm attention = AttentionForm::kNaive;
  ExecutorKind executor = ExecutorKind::kEager;
  GradientKind gradients = GradientKind::kTransient;
  OptimizerOptions optimizer = {};
  std::uint64_t seed = 0;  // of weights, batches and sampling
  Place place = {};
  bool verify = false;  // programs after every pass
};

}  // namespace tracestep
