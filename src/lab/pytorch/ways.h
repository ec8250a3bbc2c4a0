// Remedies within PyTorch: the same step with one thing changed, as a list to replay.
#pragma once

#include <string>
#include <vector>

#include "lab/pytorch/replay.h"

namespace tracestep {

struct PytorchWay {
  std::string name;  // "as it is"
  std::string how;   // the line to write; empty: none
  AllocationList list;
  AllocatorSettings settings;
};

// The list without the temporaries of the optimizer, as a fused one has none.
AllocationList with_fused_optimizer(const AllocationList& list);

// The list with each numbered part of the model ("layers.3") computed again in backward: what it
// saved is freed where its forward ends, and is there again from its first gradient on. Its last
// result is kept. Returns `list` where no part saves anything.
AllocationList with_checkpoints(const AllocationList& list);

// The list with gradients that end with their step, where they are set to zero and kept through the
// next forward; what that step's backward adds to them is a gradient of its own.
AllocationList with_gradients_let_go(const AllocationList& list);

// The list with logits, their log-softmax and their gradients in eight parts, one at a time.
AllocationList with_loss_in_chunks(const AllocationList& list);

// The step as it is, then every change that makes it hold less, alone; then all of them.
std::vector<PytorchWay> pytorch_ways(const AllocationList& list, const AllocatorSettings& settings);

}  // namespace tracestep
