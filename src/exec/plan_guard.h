// Watches a step that runs in an arena (TRACESTEP_ALLOCATOR=guarded): a kernel may write the places
// of its results and of its workspace, and nothing else. Places that the plan calls dead hold NaN,
// so that a kernel that still reads them leaves NaN in its results. Bytes that only workspaces ever
// occupy, on a GPU tens of megabytes, are not watched: a stray write there changes no result.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "analysis/plan.h"
#include "exec/launches.h"
#include "ir/program.h"
#include "runtime/device.h"

namespace tracestep {

// Memory: two copies of the arena on the host. Every launch waits for the device and copies what is
// watched.
// Errors: DeviceError that names the node, the bytes of the arena and the values whose places they
// are.
class PlanGuard {
 public:
  // `arena` has the plan's arena bytes, on `device`; all four must outlive the guard.
  PlanGuard(const Program& program, const Plan& plan, Device& device, std::byte* arena);

  // Begins a step: all places are dead.
  void restart();
  // Called before a launch; fails if a place that it is the first to need overlaps a living one.
  void before(const Launch& launch);
  // Called after a launch; fails if anything has changed that it may not write. Places without
  // later readers die.
  void after(const Launch& launch);

 private:
  struct Range {
    std::int64_t first = 0, bytes = 0;
  };
  std::vector<Range> watched_ranges() const;
  // The watched parts of the place `index`; -1: no place.
  std::vector<Range> watched_part_of(int index) const;
  void fill_dead(Range range);
  // From now on, what the place holds at this moment counts as right.
  void take_over(int index);
  // The place is dead from now on.
  void bury(int index);
  void check_unchanged(NodeId node, Range range) const;
  // "bytes 256 to 259 of the arena: no buffer's", or the results whose places they are in.
  std::string describe(std::int64_t first, std::int64_t last) const;
  std::string describe(const Plan::Place& place) const;
  [[noreturn]] void fail(NodeId node, const std::string& what) const;

  const Program& program_;
  const Plan& plan_;
  Device& device_;
  std::byte* const arena_;
  const std::vector<Range> watched_;  // in order, apart from each other
  std::vector<std::byte> image_;      // what the arena must hold
  std::vector<std::byte> now_;        // what it holds
  std::vector<bool> is_living_;       // by place
};

}  // namespace tracestep
