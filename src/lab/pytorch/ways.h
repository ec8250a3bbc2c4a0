// Changes to a PyTorch program that save memory: for each, the same step with one thing changed, as
// a list to replay.
#pragma once

#include <string>
#include <vector>

#include "lab/pytorch/replay.h"

namespace tracestep {

struct PytorchWay {
  std::string name;  // "as it is"
  std::string how;   // The line of code that makes the change; empty: none.
  AllocationList list;
  AllocatorSettings settings;
};

// The list without the optimizer's temporaries, because a fused optimizer has none.
AllocationList with_fused_optimizer(const AllocationList& list);

// The list if each numbered part of the model ("layers.3") is recomputed in backward: what the part
// saved is freed at the end of its forward, and allocated again before its first gradient. The
// part's last result is kept. Returns `list` if no part saves anything.
AllocationList with_checkpoints(const AllocationList& list);

// The list if gradients are freed at the end of their step, where the program sets them to zero and
// keeps them through the next forward. What backward added to them becomes a new gradient.
AllocationList with_gradients_let_go(const AllocationList& list);

// The list if logits, their log-softmax and their gradients are computed in eight parts, one after
// the other.
AllocationList with_loss_in_chunks(const AllocationList& list);

// The step as it is; then with each change that saves memory, alone; then with all of them.
std::vector<PytorchWay> pytorch_ways(const AllocationList& list, const AllocatorSettings& settings);

}  // namespace tracestep
