// Issues launches on the lanes of a device: in program order, each after the events that its turn
// waits for, and in batches.
#pragma once

#include <array>
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
  // Ends a run: what is issued next on lane 0 waits for all lanes.
  void join();
  // Resets the state after a capture failed, in which nothing was issued.
  void forget();

 private:
  // The state of a lane other than lane 0 during a run.
  struct Beside {
    std::size_t last_batch = 0;  // the last one that was begun
    bool is_begun = false;       // it has been used
    bool is_apart = false;       // it has work that lane 0 has not waited for
  };

  // Makes lane 0 wait for the batches of other lanes that the turn names.
  void wait(const Turn& turn);
  // Makes the node's lane wait for what lane 0 has issued, if its turn says so or it is the first.
  void fork(NodeId node);
  // Ends a batch in which a run failed, so that later collectives are not held back.
  void close_batch();
  // Return the numbers of events: on lane 0 before the k-th batch of another lane, and at its end.
  static constexpr std::size_t fork_event(std::size_t batch) { return 2 * batch; }
  static constexpr std::size_t end_event(std::size_t batch) { return 2 * batch + 1; }

  Device& device_;
  const std::span<const Turn> turns_;
  std::vector<std::size_t> batch_of_;  // by node of another lane than 0
  std::unique_ptr<LaneEvents>
      events_;  // nullptr: the device has one lane, or the program needs one
  std::array<Beside, kLaneCount> beside_;
  bool is_in_batch_ = false;  // the group's batch is open
};

}  // namespace tracestep
