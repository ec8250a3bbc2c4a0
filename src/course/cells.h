// Published times as cells, each of which is compared with others of the same study.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "course/tables.h"

namespace tracestep {

// Answers questions on published times. Each function takes one of the `times` that were given to
// the constructor, which must outlive this object.
class PublishedCells {
 public:
  explicit PublishedCells(std::span<const PublishedTime> times);

  // The FLOPs of matrix products; a context that is not stated counts as one token. 0: no model is
  // stated.
  double flops(const PublishedTime& t) const { return facts_[index_of(t)].flops; }
  // Returns why a time seems to be that of the host's launches: it does not grow with the work.
  // Empty: it does not seem so.
  const std::string& launch_bound(const PublishedTime& t) const {
    return facts_[index_of(t)].launch_bound;
  }

  // The time of another pass of this cell in the same table; nullptr: there is none.
  const PublishedTime* in_table(const PublishedTime& t, std::string_view pass) const;
  // The time of this cell by a clock that waits for the device, after the longest warm-up; nullptr:
  // there is none.
  const PublishedTime* reference(const PublishedTime& t) const;
  // The time of this cell in fp32 by the same clock; nullptr: there is none.
  const PublishedTime* in_fp32(const PublishedTime& t) const;

 private:
  struct Facts {
    double flops = 0, layers = 0;
    std::string launch_bound = {};
  };

  std::size_t index_of(const PublishedTime& t) const {
    return static_cast<std::size_t>(&t - times_.data());
  }
  double layers(const PublishedTime& t) const { return facts_[index_of(t)].layers; }
  std::string held_up_by(const PublishedTime& t) const;

  std::span<const PublishedTime> times_;
  std::vector<Facts> facts_;
};

}  // namespace tracestep
