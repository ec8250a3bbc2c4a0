// Times of many things over the steps of a recording: kept only for steps in which a thing ran.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace tracestep {

class PerStep {
 public:
  // Steps come in nearly any order; `step` is 0 or more.
  void add(std::int32_t step, std::int64_t whole_ns) {
    const auto ns = static_cast<double>(whole_ns);  // which no sum of them leaves
    ++count_;
    total_ns_ += ns;
    if (!steps_.empty() && steps_.back().first == step) {
      steps_.back().second += ns;
    } else {
      steps_.push_back({step, ns});
    }
  }

  std::int64_t count() const { return count_; }
  double total_ns() const { return total_ns_; }
  // The milliseconds of each of `steps` steps, 0 where it did not run.
  std::vector<double> ms_of(std::size_t steps) const {
    std::vector<double> out(steps, 0.0);
    for (const auto& [step, ns] : steps_) out[static_cast<std::size_t>(step)] += 1e-6 * ns;
    return out;
  }

 private:
  std::vector<std::pair<std::int32_t, double>> steps_;
  std::int64_t count_ = 0;
  double total_ns_ = 0;
};

}  // namespace tracestep
