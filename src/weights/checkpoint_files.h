// A folder of checkpoints: DIR/step-00000100 (checkpoint_format.h), and DIR/latest and DIR/best,
// which name two of them. The newest complete checkpoint stays readable even if the process or the
// machine fails at any moment: each is written under a temporary name, flushed, and then renamed
// into place. Symbolic links inside the folder are never followed: writing replaces them, and
// reading treats them as damage.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/made_folders.h"
#include "weights/checkpoint_format.h"

namespace tracestep {

// The newest complete checkpoint of a folder of weights, or the one that a file such as DIR/best
// names; nullopt for a file that names none. Errors: kInput, also for a folder without a complete
// checkpoint.
std::optional<Checkpoint> checkpoint_of_weights(const std::filesystem::path& path);

// True if the folder has any checkpoint, complete or not.
bool has_checkpoints(const std::filesystem::path& folder);

// The newest complete checkpoint of a folder, as CheckpointWriter::load() finds it, but without
// locking the folder. With Verify::kDescription its tensors are not verified and may be damaged.
std::optional<Checkpoint> load_checkpoint(const std::filesystem::path& folder,
                                          Verify verify = Verify::kAll);

// The functions below are for the processes that do not hold the CheckpointWriter.
// load_checkpoint() reads the checkpoint that the writer's load() returned, and throws as
// read_checkpoint() with Verify::kDescription. `path`: the folder, or a file in it that names a
// checkpoint.
Checkpoint load_checkpoint(const std::filesystem::path& path, std::int64_t step);
// The folder of the checkpoint that the writer's save() is writing. Throws Error{kOutput}.
Directory open_unfinished_checkpoint(const std::filesystem::path& folder, std::int64_t step);

// Writes checkpoints to a folder, which it locks against other processes.
class CheckpointWriter {
 public:
  // Creates the folder if needed, locks it, and removes what an interrupted save left behind. The
  // newest `keep` undamaged checkpoints (at least 1) and the best one are kept and older ones
  // removed. Damaged ones are not counted and never removed. Errors: kOutput when the folder cannot
  // be written or another process holds its lock, which the message names.
  explicit CheckpointWriter(const std::filesystem::path& folder, int keep = 2);
  // Removes the folder if the constructor created it and nothing was saved.
  ~CheckpointWriter();
  CheckpointWriter(CheckpointWriter&&) = default;

  // The newest complete checkpoint, its checksums verified; nullopt when there is no checkpoint. A
  // damaged one is skipped with a warning. Errors: kInput when all are damaged.
  std::optional<Checkpoint> load();
  // Must be called before a run that begins at its first step. With `overwrite`, existing
  // checkpoints are removed after the first save(); without it, existing ones throw Error{kUsage}.
  void start_anew(bool overwrite);

  // Saves a checkpoint. `write` writes all of its files to a folder (checkpoint_format.h), or
  // returns false: then the folder is removed and save() returns false. Otherwise the checkpoint is
  // on the disk on return. A checkpoint of the same step is replaced; those of later steps stay,
  // but `latest` no longer names one of them. If an old one cannot be removed, that is a warning.
  // Throws Error{kOutput} (disk full) and what `write` throws; earlier checkpoints are then
  // unchanged.
  using WriteFiles = std::function<bool(const Directory&)>;
  bool save(std::int64_t step, const WriteFiles& write);

  // The step of the checkpoint that is kept however old it gets, whose files should be on the disk;
  // nullopt: none.
  std::optional<std::int64_t> best() const { return best_; }
  void keep_best(std::int64_t step);

 private:
  void lock();
  void remove_leftovers();
  void put_in_place(std::int64_t step);
  bool is_whole(std::int64_t step);
  void prune(std::int64_t step);
  void remove_step(std::int64_t step);

  MadeFolders made_;
  Directory folder_;
  int keep_;
  FileHandle lock_;
  // For each step, whether its checkpoint is known to be undamaged.
  std::map<std::int64_t, bool> is_whole_;
  // Steps whose checkpoints are removed after the first save.
  std::vector<std::int64_t> overwritten_;
  std::optional<std::int64_t> best_;
};

}  // namespace tracestep
