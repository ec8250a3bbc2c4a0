// Scales a model's step to more ranks, from FLOPs and bytes alone: products at one rate, links at
// another, nothing else takes time. Upper bounds, to see what decides; predict has kernels.
#pragma once

#include <vector>

#include "lab/report/table.h"
#include "nn/transformer.h"

namespace tracestep {

struct RankRates {
  int ranks = 8;                   // N: those that the batch is for
  double flops_per_s = 0;          // R, of a rank's products
  double link_bytes_per_s = 0;     // W, that a rank gets from the others of its host
  double between_bytes_per_s = 0;  // from those of other hosts; 0: as much

  // The rate between `span` neighbouring ranks: that of the link between hosts if they leave one.
  double over(int span) const;
};
inline constexpr int kRanksOfHost = 8;

enum class RankForm {
  kData,     // gradients are summed beside backward
  kSharded,  // weights gathered beside forward and backward, gradients scattered beside backward
  kTensor,   // activations are summed four times in each layer, and waited for
  kMesh,     // sharded, each replica being tensor parallel over mesh_width() ranks
};
inline constexpr RankForm kRankForms[] = {RankForm::kData, RankForm::kSharded, RankForm::kTensor,
                                          RankForm::kMesh};
std::string_view name_of(RankForm form);

// Ranks of a replica of kMesh: as many as divide the heads, 8 at most.
int mesh_width(const ModelConfig& model);

struct ScaledStep {
  bool is_possible = false;             // else heads, or sequences, are fewer than the ranks
  double tokens = 0;                    // of the step
  double compute_s = 0, exposed_s = 0;  // products; links, while no product runs

  double efficiency() const { return compute_s / (compute_s + exposed_s); }
  double tokens_per_s() const { return tokens / (compute_s + exposed_s); }
};
// A training step on `ranks`, weights, gradients and activations being sent in 2 bytes. `is_weak`:
// each rank has the tokens that one of rates.ranks has of `shape`; else the batch is `shape`'s, and
// a replica needs a sequence.
ScaledStep scaled_step(RankForm form, const ModelConfig& model, const BatchShape& shape,
                       const RankRates& rates, int ranks, bool is_weak);

// Rows: 1 to 1024 ranks; columns: the share of the step in which products run, by form. Null where
// the model does not allow the form.
Table scaling_table(const ModelConfig& model, const BatchShape& shape, const RankRates& rates,
                    bool is_weak);
// Rows: forms; columns: how many ranks hide what they send, how many still compute half of the
// time, and what ends it.
Table bounds_table(const ModelConfig& model, const BatchShape& shape, const RankRates& rates);

}  // namespace tracestep
