// The checkpoints of one training: opened, continued and written by all of its processes together.
// The first one has the folder's lock, decides which checkpoint is continued, and puts a new one in
// place when every rank has said that its shard is on the disk.
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

// Error{kNotFinite} for initial weights or states that hold an infinity or a NaN: every step would
// fail because of them.
void check_finite(const SavedTensors& tensors);

// The weights of option init.
struct InitialWeights {
  SavedTensors tensors;
  std::string hash = {};  // of the file, or of the checkpoint's description
};

// As open_weights(), the same in every process: the first one chooses the checkpoint of a folder
// and verifies it. A file has a hash where `needs_hash`, or where processes compare theirs. Errors:
// also kFailed, where processes see other files. `processes`: nullptr: this one is alone.
InitialWeights open_initial_weights(const std::filesystem::path& path, bool needs_hash,
                                    Processes* processes);

class RunCheckpoints {
 public:
  // Opens the folder, if the options have one, and on resume finds the checkpoint to continue from;
  // damaged ones give warnings. `processes`: of the run; nullptr: this one is alone. Errors: as
  // CheckpointWriter; kFailed where processes see other files.
  RunCheckpoints(const TrainOptions& options, Processes* processes);

  // Until restore(); nullptr: training starts at its first step.
  const Checkpoint* resumed() const { return resumed_ ? &*resumed_ : nullptr; }
  // Sets the facts that this run's checkpoints store about it; call it before the first save.
  void describe(CheckpointRun run);
  // The lowest validation loss so far, that of the folder included where the run is resumed and
  // validates on the same tokens.
  std::optional<Validated> best() const { return best_; }
  // Takes the validation loss of the step that may be saved next; true: it is the best, and that
  // step, once it is saved, is kept as DIR/best. Every process must call this; the first decides.
  bool add_validation(const Validated& validation);
  // Puts weights and states of resumed() into `to`; returns the steps already done.
  std::int64_t restore(const WholeTensors& to);

  // Writes the state after `step`, whole or not at all. Every process must call this. When a tensor
  // is not finite, nothing changes, and the process that holds it returns that tensor.
  // **Memory**: of the host, one tensor; with ranks, a rank's piece of one.
  // **Errors**: kOutput, with the rank; in the processes beside it kFailed, or they wait until it
  // ends them.
  std::optional<NotFinite> save(std::int64_t step, const WholeTensors& from);
  // As save(), by the first process alone, which must hold whole tensors.
  std::optional<NotFinite> save_alone(std::int64_t step, const WholeTensors& from);

  bool are_on() const { return !folder_.empty(); }
  // The newest checkpoint that this run has written or continued; -1: none.
  std::int64_t saved_at() const { return saved_at_; }
  // "the last finite checkpoint is step 4 in run"
  std::string last_finite() const;

 private:
  void find_best();
  // The run's description as the checkpoint of `step` stores it.
  CheckpointRun described(std::int64_t step) const;
  void saved(std::int64_t step);
  std::optional<NotFinite> save_shards(std::int64_t step, const WholeTensors& from);

  std::filesystem::path folder_;
  Processes* const processes_;
  std::optional<CheckpointWriter> writer_;  // of the first process
  std::optional<Checkpoint> resumed_;
  CheckpointRun run_;
  std::optional<Validated> last_, best_;  // validations
  std::int64_t saved_at_ = -1;
};

}  // namespace tracestep
