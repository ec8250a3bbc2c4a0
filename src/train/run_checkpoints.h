// The checkpoints of one training, which all of its processes open, continue and write together.
// The first process holds the folder's lock, decides which checkpoint is continued, and puts a new
// one in place when every rank has written its shard to the disk.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "train/loop.h"
#include "weights/checkpoint_files.h"
#include "weights/not_finite.h"
#include "weights/whole_tensors.h"

namespace tracestep {

// Throws Error{kNotFinite} if initial weights or states hold an infinity or a NaN, with which every
// step would fail.
void check_finite(const SavedTensors& tensors);

// The weights that option init names.
struct InitialWeights {
  SavedTensors tensors;
  std::string hash = {};  // The hash of the file, or the one in the checkpoint's description.
};

// Opens the initial weights as open_weights() does, the same in every process: the first process
// chooses and verifies the checkpoint in a folder. A file is hashed if `needs_hash`, or if
// processes must compare it. Throws also Error{kFailed} if processes see different files.
// `processes`: nullptr: this process is alone.
InitialWeights open_initial_weights(const std::filesystem::path& path, bool needs_hash,
                                    Processes* processes);

class RunCheckpoints {
 public:
  // Opens the folder if the options name one, and on resume finds the checkpoint to continue;
  // damaged ones give warnings. `processes`: those of the run; nullptr: this process is alone.
  // Throws as CheckpointWriter, and Error{kFailed} if processes see different files.
  RunCheckpoints(const TrainOptions& options, Processes* processes);

  // The checkpoint to continue, until restore(); nullptr: training starts at its first step.
  const Checkpoint* resumed() const { return resumed_ ? &*resumed_ : nullptr; }
  // Sets the facts that this run's checkpoints store about it; call it before the first save.
  void describe(CheckpointRun run);
  // The lowest validation loss of the run. On resume it includes that of the folder, if the run
  // validates on the same tokens.
  std::optional<Validated> best() const { return best_; }
  // Takes the validation loss of the step that may be saved next. Returns true if it is the lowest:
  // that step, once saved, is kept as DIR/best. Every process must call this; the first one
  // decides.
  bool add_validation(const Validated& validation);
  // Puts weights and states of resumed() into `to`; returns the steps already done.
  std::int64_t restore(const WholeTensors& to);

  // Writes the state after `step`, whole or not at all. Every process must call this. When a tensor
  // is not finite, nothing changes, and the process that holds it returns that tensor.
  // **Memory**: of the host, one tensor; with ranks, a rank's piece of one.
  // **Errors**: kOutput, with the rank; in the processes beside it kFailed, or they wait until it
  // ends them.
  std::optional<NotFinite> save(std::int64_t step, const WholeTensors& from);
  // Does what save() does, but called by the first process alone, which must hold whole tensors.
  std::optional<NotFinite> save_alone(std::int64_t step, const WholeTensors& from);

  bool are_on() const { return !folder_.empty(); }
  // The newest checkpoint that this run has written or continued; -1: none.
  std::int64_t saved_at() const { return saved_at_; }
  // The newest checkpoint in words: "the last finite checkpoint is step 4 in run".
  std::string last_finite() const;

 private:
  void find_best();
  // The run's description as the checkpoint of `step` stores it.
  CheckpointRun described(std::int64_t step) const;
  void saved(std::int64_t step);
  std::optional<NotFinite> save_shards(std::int64_t step, const WholeTensors& from);

  std::filesystem::path folder_;
  Processes* const processes_;
  std::optional<CheckpointWriter> writer_;  // Only the first process has one.
  std::optional<Checkpoint> resumed_;
  CheckpointRun run_;
  std::optional<Validated> last_, best_;  // validations
  std::int64_t saved_at_ = -1;
};

}  // namespace tracestep
