// Finds our own times by the keys of published tables: size, context, precision and pass.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "course/published.h"

namespace tracestep {

// Medians of our rows by cell and pass. Only rows of the same batch and vocabulary with naive
// attention that were not compiled count; where there are primitive rows, fused ones do not.
class OurTimes {
 public:
  explicit OurTimes(const ReplayInput& ours);

  // Our time of the cell in ms, where backward is forward-backward minus forward; 0 when there is
  // none.
  double find(const PublishedTime& t) const;

  const std::string& gpu() const { return gpu_; }

 private:
  static std::string key_of(std::string_view size, double context, std::string_view precision,
                            std::string_view mode);

  std::map<std::string, double> ms_;
  std::string gpu_;
};

}  // namespace tracestep
