// Issues launches on the lanes of a device: in program order, each after the events that its turn
// waits for, and in batches.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "analysis/lanes.h"
#include "exec/launches.h"
#include "runtime/device.h"

namespace tracestep {

class LaneOrder {
 public:
  // The device and `turns`, which has an entry for each node, must outlive this object.
  LaneOrder(Device& device, std::span<const Turn> turns);

  // Launches on the node's lane; with `alone`, on lane 0 and outside of its batch.
  void launch(const Launch& launch, bool alone = false);
  // Ends a run: work that is issued on lane 0 from now on waits for both lanes.
  void join();
  // Resets the state after a capture failed, in which nothing was issued.
  void forget();

 private:
  // Makes lane 0 wait as the turn says.
  void wait(const Turn& turn);
  // Makes lane 1 wait as the node's turn says; its first node in a run waits for everything that
  // was issued.
  void fork(NodeId node);
  // Ends a batch in which a run failed, so that later collectives are not held back.
  void close_batch();
  // The indices of lane events: 2k is lane 0 in front of the k-th batch of lane 1, and 2k + 1 is
  // the end of that batch.
  static constexpr std::size_t fork_event(std::size_t batch) { return 2 * batch; }
  static constexpr std::size_t end_event(std::size_t batch) { return 2 * batch + 1; }

  Device& device_;
  const std::span<const Turn> turns_;
  std::vector<std::size_t> batch_of_;  // The batch of each node of lane 1.
  std::unique_ptr<LaneEvents>
      events_;  // nullptr: the device has only one lane, or the program uses only one.
  std::size_t last_batch_ = 0;  // The batch of lane 1 that was begun last.
  bool is_begun_ = false;       // True if lane 1 was used in this run.
  bool is_apart_ = false;       // True if lane 1 has work for which lane 0 has not waited.
  bool is_in_batch_ = false;    // True if a batch of the group's collectives is open.
};

}  // namespace tracestep
