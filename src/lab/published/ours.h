// Our own times, as published tables name theirs: by size, context, precision and pass.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "lab/published/published.h"

namespace tracestep {

// Sequences in a batch of every published table.
inline constexpr double kPublishedBatch = 4;

// Medians of our rows by cell and pass, of the same batch and vocabulary and with naive attention;
// primitive rows before fused ones.
class OurTimes {
 public:
  explicit OurTimes(const ReplayInput& ours);

  // Milliseconds of our own; backward is forward and backward less forward. 0: none.
  double find(const PublishedTime& t) const;

  const std::string& gpu() const { return gpu_; }

 private:
  static std::string key_of(std::string_view size, double context, std::string_view precision,
                            std::string_view mode);

  std::map<std::string, double> ms_;
  std::string gpu_;
};

}  // namespace tracestep
