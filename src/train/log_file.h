// The training log: one JSON line per step.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>

#include "train/loop.h"

namespace tracestep {

class LogFile {
 public:
  // Starts the file anew, or, after a resume, keeps its lines up to step `resumed_from`. An empty
  // path logs nothing. Throws Error{kOutput}.
  LogFile(const std::filesystem::path& path, std::int64_t resumed_from);

  // {"step":…,"loss":…,"grad_norm":…,"lr":…,"tokens_per_s":…[,"validation_loss":…]
  //  [,"loss_scale":…,"skipped_steps":…]}; a norm that is infinite or NaN is null.
  // Throws Error{kOutput} when the disk is full.
  void add(const TrainStep& step);
  void flush();

 private:
  std::filesystem::path path_;
  std::ofstream file_;
};

}  // namespace tracestep
