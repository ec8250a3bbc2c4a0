// Progress of reading a long file.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "base/log.h"

namespace tracestep {

// Shows the progress of reading a file. It is silent at first, because most files are small. After
// `patience`, a terminal gets a progress line and a log gets one message with the remaining time.
class ReadingProgress {
 public:
  // `what` starts both texts: "checking train.bin". `total` is in any unit, the same as update()'s.
  ReadingProgress(std::string what, std::int64_t total,
                  std::chrono::milliseconds patience = std::chrono::seconds{2});

  // Shows how much is done. A call costs one reading of the clock if there is nothing to show yet.
  void update(std::int64_t done);

 private:
  std::string what_;
  std::int64_t total_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::chrono::milliseconds patience_;
  bool has_logged_ = false;
  ProgressLine line_;
};

}  // namespace tracestep
