// The training log: one JSON line per step.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>

#include "base/directory.h"
#include "train/loop.h"

namespace tracestep {

// Throws Error{kInput} when `path` is an existing file that is not a training log and would be
// overwritten.
void check_log(const std::filesystem::path& path);

class LogFile {
 public:
  // Starts an empty file, or, after a resume, keeps its lines up to step `resumed_from`; warns when
  // the lines end before that step. An empty path logs nothing. A regular file is locked as long as
  // this is there. Throws Error{kOutput}, also when another process writes the log, and kInput for
  // lines that do not belong to a log.
  LogFile(const std::filesystem::path& path, std::int64_t resumed_from);

  // {"step":…,"loss":…,"grad_norm":…,"lr":…,"tokens_per_s":…[,"validation_loss":…]
  //  [,"loss_scale":…,"skipped_steps":…]}; a norm that is infinite or NaN is null.
  // Throws Error{kOutput} when the disk is full.
  void add(const TrainStep& step);
  void flush();

 private:
  std::filesystem::path path_;
  std::ofstream file_;
  FileHandle lock_;
};

}  // namespace tracestep
