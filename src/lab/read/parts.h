// Collects the times of parts of a step over all steps of a recording. A part is a kind of work, a
// pass, a gap, a module or a kernel; all tables are made from these.
#pragma once

#include <cstdint>
#include <deque>
#include <unordered_map>
#include <utility>
#include <vector>

#include "lab/read/replay_names.h"
#include "lab/read/work_class.h"

namespace tracestep {

// The time of one part in each step; only steps in which the part ran are stored.
class PerStep {
 public:
  // Adds time to a step. Steps come nearly in order; `step` is 0 or more.
  void add(std::int32_t step, std::int64_t whole_ns) {
    // Sums of whole nanoseconds are exact in a double.
    const auto ns = static_cast<double>(whole_ns);
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
  // Adds the milliseconds of each step to `to`, which has an element for each step.
  void add_to(std::vector<double>& to) const {
    for (const auto& [step, ns] : steps_) to[static_cast<std::size_t>(step)] += 1e-6 * ns;
  }
  // The milliseconds in each of `steps` steps; 0 if the part did not run in a step.
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

// The kinds of parts. A module has three: the times of its own work, without the modules in it, in
// the whole step, in forward and in backward.
enum class PartLevel : std::uint8_t {
  kKind,
  kHidden,  // Collectives while other work runs.
  kPass,
  kGap,
  kModule,
  kModuleForward,
  kModuleBackward,
  kKernel,
};

struct Part {
  PartLevel level = PartLevel::kKind;
  // By level: a WorkClass, TracePass or GapCause, an index into TraceTimes::paths, or a name's
  // number.
  std::uint32_t number = 0;
  WorkClass work = WorkClass::kMemoryBound;  // The class of a kernel's work.
  HostPlace place = {};                      // For a kernel: the place of its first launch.
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
  // The parts of a level, in the order in which they were first seen.
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
