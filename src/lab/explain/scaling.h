// Scales a model's step to more ranks by FLOPs and bytes only: products run at one rate, links at
// another, and nothing else takes time. The results are upper bounds that show what limits the
// step; `predict` models single kernels.
#pragma once

#include <vector>

#include "base/enum_words.h"
#include "lab/report/table.h"
#include "nn/transformer.h"

namespace tracestep {

struct RankRates {
  int ranks = 8;           // N, the number of ranks for which the batch is given.
  double flops_per_s = 0;  // R, the FLOP/s of a rank's products.
  // W, the bytes per second that a rank receives from the others of its host.
  double link_bytes_per_s = 0;
  // The bytes per second that it receives from ranks of other hosts; 0: as much as within the host.
  double between_bytes_per_s = 0;

  // The bytes per second between `span` neighbouring ranks: those of the link between hosts if the
  // ranks are on several.
  double over(int span) const;
};
inline constexpr int kRanksOfHost = 8;

enum class RankForm {
  kData,  // Data parallel: gradients are summed while backward runs.
  // ZeRO-3: weights are gathered during forward and backward, and gradients scattered during
  // backward.
  kSharded,
  // Tensor parallel: activations are summed four times in each layer, while nothing else runs.
  kTensor,
  kMesh,  // ZeRO-3 over replicas, each of which is tensor parallel over mesh_width() ranks.
};
TRACESTEP_WORDS(RankForm, "data parallel", "fully sharded", "tensor parallel", "sharded × tensor");

// The ranks of a replica with kMesh: the most that divide the heads, up to 8.
int mesh_width(const ModelConfig& model);

struct ScaledStep {
  // False if the model has fewer heads, or the batch fewer sequences, than the form has ranks.
  bool is_possible = false;
  double tokens = 0;  // The tokens of the step.
  // The seconds of products, and those of links during which no product runs.
  double compute_s = 0, exposed_s = 0;

  double efficiency() const { return compute_s / (compute_s + exposed_s); }
  double tokens_per_s() const { return tokens / (compute_s + exposed_s); }
};
// A training step on `ranks`; weights, gradients and activations are sent in 2 bytes per element.
// `is_weak`: each rank has as many tokens as one of rates.ranks has with `shape`. Otherwise the
// batch stays that of `shape`, and each replica needs at least one sequence.
ScaledStep scaled_step(RankForm form, const ModelConfig& model, const BatchShape& shape,
                       const RankRates& rates, int ranks, bool is_weak);

// Rows: 1 to 1024 ranks; columns: the share of the step in which products run, by form. Null where
// the model does not allow the form.
Table scaling_table(const ModelConfig& model, const BatchShape& shape, const RankRates& rates,
                    bool is_weak);
// A row for each form: up to how many ranks communication is hidden, up to how many computing takes
// half of the time, and what limits it.
Table bounds_table(const ModelConfig& model, const BatchShape& shape, const RankRates& rates);

}  // namespace tracestep
