// The training log: one JSON line per step.
#pragma once

#include <cstdint>
#include <filesystem>

#include "base/directory.h"
#include "train/loop.h"

namespace tracestep {

class LogFile {
 public:
  // Starts an empty log, or after a resume keeps its lines up to step `resumed_from`; warns if the
  // lines end before that step. An empty path logs nothing. The file is locked while this object
  // exists; a stream is written to directly. Throws Error{kOutput}, also if another process writes
  // the log, and Error{kInput} for lines that are not of a log.
  LogFile(const std::filesystem::path& path, std::int64_t resumed_from);

  // Writes a line: {"step":…,"loss":…,"grad_norm":…,"lr":…,"tokens_per_s":…[,"validation_loss":…]
  // [,"loss_scale":…,"skipped_steps":…]}; a norm that is infinite or NaN is null. Throws
  // Error{kOutput} when the disk is full.
  void add(const TrainStep& step);

 private:
  std::filesystem::path path_;
  FileHandle file_;
};

}  // namespace tracestep
