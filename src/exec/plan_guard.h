// Checks a step that runs in an arena (TRACESTEP_ALLOCATOR=guarded): a kernel may only write the
// places of its results and of its workspace. Places without a live value hold NaN, so that a
// kernel which still reads them produces NaN. Bytes that only workspaces use (tens of megabytes on
// a GPU) are not watched, because a stray write there changes no result.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "analysis/plan.h"
#include "exec/launches.h"
#include "ir/program.h"
#include "runtime/device.h"

namespace tracestep {

// Checks each launch of a step against its plan, by two copies of the arena on the host, and waits
// for the device each time. Throws DeviceError naming the node, the bytes and the values there.
class PlanGuard {
 public:
  // `arena`: the address of the plan's arena on `device`. All four arguments must outlive the
  // guard.
  PlanGuard(const Program& program, const Plan& plan, Device& device, std::byte* arena);

  // Begins a step, in which no place of the plan is live yet.
  void restart();
  // Called before a launch. Fails if a place of the plan that the launch is the first to use
  // overlaps one that is live.
  void before(const Launch& launch);
  // Called after a launch. Fails if bytes have changed that the launch may not write. Places that
  // no later launch reads become dead.
  void after(const Launch& launch);

 private:
  struct Range {
    std::int64_t first = 0, bytes = 0;
  };
  std::vector<Range> watched_ranges() const;
  // Returns the watched ranges of place `index` of the plan; none for -1.
  std::vector<Range> watched_part_of(int index) const;
  void fill_dead(Range range);
  // Takes what place `index` of the plan holds now as its right content.
  void take_over(int index);
  // Marks place `index` of the plan as dead, and fills it with NaN.
  void bury(int index);
  void check_unchanged(NodeId node, Range range) const;
  // Describes a range of bytes: "bytes 256 to 259 of the arena: no buffer's", or the results that
  // have a place there.
  std::string describe(std::int64_t first, std::int64_t last) const;
  std::string describe(const Plan::Place& place) const;
  [[noreturn]] void fail(NodeId node, const std::string& what) const;

  const Program& program_;
  const Plan& plan_;
  Device& device_;
  std::byte* const arena_;
  const std::vector<Range> watched_;  // In order, without overlaps.
  std::vector<std::byte> image_;      // The content that the arena must have.
  std::vector<std::byte> now_;        // What the arena holds.
  std::vector<bool> is_living_;       // For each place, whether its value is alive.
};

}  // namespace tracestep
