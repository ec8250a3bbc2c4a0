// A folder of checkpoints: DIR/step-00000100 (checkpoint_format.h) and DIR/latest. Whatever moment
// the process or the machine dies, the newest complete checkpoint stays readable: each is written
// beside, flushed, and then renamed into place. Symbolic links among the members are never
// followed: what is written replaces them, what is read counts as damaged.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "train/checkpoint_format.h"

namespace tracestep {

// The newest complete checkpoint below `folder`, its checksums verified; nullopt when there is no
// checkpoint. A damaged one is passed over with a warning.
// Errors: kInput when `folder` is not a folder, or when all checkpoints are damaged.
std::optional<Checkpoint> load_checkpoint(const std::filesystem::path& folder);

// The one process that writes checkpoints to a folder.
class CheckpointWriter {
 public:
  // Makes the folder if needed, locks it, and removes what an interrupted save left behind. `keep`
  // undamaged checkpoints (at least 1) stay, older ones are removed. Damaged ones count for nothing
  // and stay where they are.
  // Errors: kOutput when it cannot be written or another process holds it.
  explicit CheckpointWriter(const std::filesystem::path& folder, int keep = 2);

  // As load_checkpoint().
  std::optional<Checkpoint> load();
  // Before a run that begins at its first step. With `overwrite` the checkpoints that are there are
  // removed as soon as the first save() is done, not before; without, they are an error, kUsage.
  void start_anew(bool overwrite);

  // On return the checkpoint is on the disk. One of the same step is replaced; those of later steps
  // are left alone, but `latest` no longer names them. What cannot be removed is a warning.
  // Errors: kOutput (disk full); then the earlier checkpoints are as they were.
  void save(std::int64_t step, const TensorMap& model, const TensorMap& state, const Json& meta);

 private:
  void lock();
  void remove_leftovers();
  void put_in_place(std::int64_t step);
  bool is_whole(std::int64_t step);
  void prune(std::int64_t step);
  void remove_step(std::int64_t step);

  Directory folder_;
  int keep_;
  FileHandle lock_;
  std::map<std::int64_t, bool> is_whole_;  // of the steps that were written or verified so far
  std::vector<std::int64_t> overwritten_;  // to be removed after the first save
};

}  // namespace tracestep
