// Watches a step that runs in an arena (TRACESTEP_ALLOCATOR=guarded): a kernel may write the places
// of its results and of its workspace, and nothing else. Places that the plan calls dead hold NaN,
// so that a kernel that still reads them leaves NaN in its results.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "analysis/plan.h"
#include "exec/launches.h"
#include "ir/program.h"
#include "runtime/device.h"

namespace tracestep {

// Memory: a copy of the arena on the host, and another while it is compared. Every launch waits for
// the device and copies the whole arena.
// Errors: DeviceError that names the node, the bytes of the arena and the values whose places they
// are.
class PlanGuard {
 public:
  // `arena` has the plan's arena bytes, on `device`; all four must outlive the guard.
  PlanGuard(const Program& program, const Plan& plan, Device& device, std::byte* arena);

  // At the start of a step: all places are dead.
  void restart();
  // Before a launch: the places that it is the first to need must not overlap living ones.
  void before(const Launch& launch);
  // After a launch: everything that it may not write is as it was. Places without later readers
  // die.
  void after(const Launch& launch);

 private:
  // What the arena holds now in place `index` is right; -1: no place.
  void take_over(int index);
  // The place is dead from now on.
  void bury(int index);
  [[noreturn]] void fail_changed(NodeId node) const;
  // "bytes 256 to 259 of the arena: no buffer's", or the results whose places they are in.
  std::string describe(std::int64_t first, std::int64_t last) const;
  std::string describe(const Plan::Place& place) const;
  [[noreturn]] void fail(NodeId node, const std::string& what) const;

  const Program& program_;
  const Plan& plan_;
  Device& device_;
  std::byte* const arena_;
  std::vector<std::byte> image_;  // what the arena must hold
  std::vector<std::byte> now_;    // what it holds
  std::vector<bool> is_living_;   // by place
};

}  // namespace tracestep
