// Names the properties that a resumed run must share with the interrupted one to continue it
// exactly: one table of entries.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/hash.h"
#include "base/json.h"
#include "train/loop.h"

namespace tracestep {

// What identifies a run besides its options: the data, the device and the initial weights.
struct RunContent {
  std::string device;  // The device, as Device::name().
  std::int64_t tokens = 0, validation_tokens = 0;
  // A hash of all token ids, first those for training, then those for validation.
  std::string text = {};
  // A hash of the initial weights' file; empty: they are made from the seed.
  std::string init = {};
};

// The fingerprint of a run, which each of its checkpoints stores.
Json fingerprint(const TrainOptions& options, const RunContent& content);

// Throws Error{kUsage, "change"} unless every name is that of an entry that may change. Those that
// change only how a step is rounded (compile passes, chunks of the loss, ranks) need not be named.
void check_changes(std::span<const std::string> names);

// For a run with fingerprint `now` that continues the run `saved` from its checkpoint at `step`:
// the fingerprint for its own checkpoints, which is `now` and, under "changes", every change so
// far. Accepted changes and entries that the checkpoint lacks give warnings. Throws Error{kUsage}
// naming every other entry that differs and is not in `changes`, with what it was and what it is
// now.
Json continue_run(const Json& saved, const Json& now, std::span<const std::string> changes,
                  std::int64_t step);

// How many batches a validation of the run `saved` reads, 0: all. Earlier versions read 8 and did
// not record it.
std::int64_t validation_batches_of(const Json& saved);

}  // namespace tracestep
