// Finds out which implementation a memory trace comes from: how many tensors of B·H·T² each layer
// keeps, whether there is a mask, whether weights have narrow copies. It uses the categories and
// frames in the file if there are any (in our own snapshots), else sizes and counts (PyTorch's), as
// far as no other tensor of the model has the same size.
#pragma once

#include "lab/report/table.h"
#include "lab/snapshots/trace.h"
#include "nn/transformer.h"

namespace tracestep {

enum class Presence { kNo, kYes, kAmbiguous };

// The findings for a model of given sizes.
struct Fingerprint {
  // True: the trace lacks tensors that every step of this model holds, so it is of another model,
  // batch or context. Nothing else is found then.
  bool is_mismatch = false;
  // The tensors of B·H·T² that each layer keeps, including narrow copies for a product; the largest
  // possible number if the trace is ambiguous.
  int scores_per_layer = 0;
  bool scores_are_ambiguous = false;
  int score_bytes = 0;  // The bytes of an element of the widest of them; 0: there are none.
  Presence mask = Presence::kNo;           // Whether there is a mask, a tensor of T² elements.
  Presence weight_copies = Presence::kNo;  // narrow ones
  Table table;  // A row for each kind of tensor; the notes interpret them.
};

Fingerprint fingerprint_of(const MemoryTrace& trace, const ModelConfig& model, BatchShape shape);

}  // namespace tracestep
