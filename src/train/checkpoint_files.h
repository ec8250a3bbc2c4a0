// Checkpoints on disk: DIR/step-00000100/{model.safetensors, state.safetensors, meta.json} and
// DIR/latest. Whatever moment the process or the machine dies, the newest complete checkpoint stays
// readable: each is written beside, flushed, and then renamed into place.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "train/safetensors.h"

namespace tracestep {

struct Checkpoint {
  std::int64_t step = 0;
  std::filesystem::path folder;
  SafetensorsFile model, state;
  Json meta;                          // what the run stored
  std::vector<std::string> warnings;  // newer checkpoints that were damaged, and how
};

// The newest complete checkpoint below `folder`, its checksums verified; nullopt when there is no
// checkpoint. A damaged one is passed over with a warning.
// Errors: kInput when `folder` is not a folder, or when all checkpoints are damaged.
std::optional<Checkpoint> load_checkpoint(const std::filesystem::path& folder);

// The one process that writes checkpoints to a folder.
class CheckpointWriter {
 public:
  // Makes the folder if needed, locks it, and removes what an interrupted save left behind. `keep`
  // checkpoints (at least 1) stay, older ones are removed.
  // Errors: kOutput when it cannot be written or another process holds it.
  explicit CheckpointWriter(const std::filesystem::path& folder, int keep = 2);
  ~CheckpointWriter();
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  // On return the checkpoint is on the disk. One of the same step is replaced; those of later steps
  // (of another run) are left alone, but `latest` no longer names them.
  // Errors: kOutput (disk full); then the earlier checkpoints are as they were.
  void save(std::int64_t step, const TensorMap& model, const TensorMap& state, const Json& meta);

 private:
  void remove_leftovers();
  void prune(std::int64_t step);

  std::filesystem::path folder_;
  int keep_;
  int lock_ = -1;
};

}  // namespace tracestep
