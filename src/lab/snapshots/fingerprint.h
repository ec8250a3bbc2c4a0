// Which implementation a memory trace comes from: how many tensors of B·H·T² each layer keeps,
// whether there is a mask, whether weights have narrow copies. Categories and frames of the file
// tell, where it has them (our own snapshots); else sizes and counts do (PyTorch's), as far as no
// other tensor of the model has the same size.
#pragma once

#include "lab/report/table.h"
#include "lab/snapshots/trace.h"
#include "nn/transformer.h"

namespace tracestep {

enum class Presence { kNo, kYes, kAmbiguous };

// The findings for a model of given sizes.
struct Fingerprint {
  // The trace lacks what every step of this model holds: it is of another model, or of another
  // batch and context. Nothing else is found then.
  bool is_mismatch = false;
  // Tensors of B·H·T² that each layer keeps, narrow copies for a product among them; the most there
  // can be when the finding is ambiguous.
  int scores_per_layer = 0;
  bool scores_are_ambiguous = false;
  int score_bytes = 0;                     // of an element of the widest; 0: there are none
  Presence mask = Presence::kNo;           // a tensor of T² elements
  Presence weight_copies = Presence::kNo;  // narrow ones
  Table table;                             // rows: kinds of tensors; notes: the reading
};

Fingerprint fingerprint_of(const MemoryTrace& trace, const ModelConfig& model, BatchShape shape);

}  // namespace tracestep
