// Which implementation a memory trace comes from, inferred from sizes and counts only: how many
// tensors of B·H·T² each layer keeps, whether there is a mask, whether weights have narrow copies.
// Works on snapshots of ours and of PyTorch.
#pragma once

#include "lab/memory/trace.h"
#include "lab/report/table.h"
#include "nn/transformer.h"

namespace tracestep {

// The findings for a model of given sizes.
struct Fingerprint {
  int scores_per_layer = 0;  // tensors of B·H·T² that each layer keeps
  int score_bytes = 0;       // of an element; 0: there are none
  bool has_mask = false;     // one of T² elements
  bool has_weight_copies = false;
  Table table;  // rows: kinds of tensors; notes: the reading
};

Fingerprint fingerprint_of(const MemoryTrace& trace, const ModelConfig& model, BatchShape shape);

}  // namespace tracestep
