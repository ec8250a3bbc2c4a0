// Times of the parts of a step over the steps of a recording, whatever the parts are: kinds of
// work, passes, gaps, modules, kernels. All tables are made of these.
#pragma once

#include <cstdint>
#include <deque>
#include <unordered_map>
#include <utility>
#include <vector>

#include "lab/read/replay_names.h"
#include "lab/read/work_class.h"

namespace tracestep {

// Kept only for steps in which a thing ran.
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
  // Adds the milliseconds of each step to `to`, which has one of each.
  void add_to(std::vector<double>& to) const {
    for (const auto& [step, ns] : steps_) to[static_cast<std::size_t>(step)] += 1e-6 * ns;
  }
  // The milliseconds of each of `steps` steps, 0 where it did not run.
  std::vector<double> ms_of(std::size_t steps) const {
    std::vector<double> out(steps, 0.0);
    add_to(out);
    return out;
  }

 private:
  std::vector<std::pair<std::int32_t, double>> steps_;
  std::int64_t count_ = 0;
  double total_ns_ = 0;
};

// The time of a module: its own, without modules in it; all of it; and the part in two of its
// passes.
enum class PartLevel : std::uint8_t {
  kKind,
  kHidden,  // collectives beside other work
  kPass,
  kGap,
  kModule,
  kModuleForward,
  kModuleBackward,
  kKernel,
};

struct Part {
  PartLevel level = PartLevel::kKind;
  std::uint32_t number = 0;  // a WorkClass, TracePass or GapCause; in TraceTimes::paths; a name
  WorkClass work = WorkClass::kMemoryBound;  // of a kernel
  HostPlace place = {};                      // of a kernel: of the first of them
  PerStep times = {};
};

class Parts {
 public:
  Part& at(PartLevel level, std::uint32_t number, WorkClass work = {}) {
    const std::uint64_t key = std::uint64_t{number} << 16 | static_cast<std::uint64_t>(level) << 8 |
                              static_cast<std::uint64_t>(work);
    const auto [found, is_new] = places_.try_emplace(key, parts_.size());
    if (is_new) parts_.push_back({.level = level, .number = number, .work = work});
    return parts_[found->second];
  }
  template <class Enum>
  PerStep& times(PartLevel level, Enum which) {
    return at(level, static_cast<std::uint32_t>(which)).times;
  }
  // In the order in which they were first seen.
  std::vector<const Part*> of(PartLevel level) const {
    std::vector<const Part*> out;
    for (const Part& part : parts_) {
      if (part.level == level) out.push_back(&part);
    }
    return out;
  }

 private:
  std::deque<Part> parts_;
  std::unordered_map<std::uint64_t, std::size_t> places_;
};

}  // namespace tracestep
