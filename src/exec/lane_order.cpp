#include "exec/lane_order.h"

#include <utility>

#include "base/indexed.h"
#include "runtime/communicator.h"

namespace tracestep {

LaneOrder::LaneOrder(Device& device, std::span<const Turn> turns)
    : device_(device), turns_(turns), batch_of_(turns.size(), 0) {
  std::size_t batches = 0;
  for (std::size_t i = 0; i < turns.size(); ++i) {
    if (turns[i].lane == 0) continue;
    batches += turns[i].opens_batch ? 1 : 0;
    batch_of_[i] = batches - 1;
  }
  if (batches > 0) events_ = device.make_lane_events(2 * batches);
}

void LaneOrder::launch(const Launch& launch, bool alone) {
  const Turn& turn = turns_[static_cast<std::size_t>(launch.node)];
  const int lane = events_ == nullptr || alone ? 0 : turn.lane;
  if (lane == 0) {
    wait(turn);
  } else {
    fork(launch.node);
  }
  Communicator* const group = alone ? nullptr : device_.group();
  if (group != nullptr && turn.opens_batch && !turn.closes_batch) {
    group->begin_batch();
    is_in_batch_ = true;
  }
  launch.call.launch(device_.context(lane));
  if (group != nullptr && turn.closes_batch && !turn.opens_batch) {
    is_in_batch_ = false;
    group->end_batch();
  }
  if (lane != 0 && turn.closes_batch) events_->set(end_event(beside_[at(lane)].last_batch), lane);
}

void LaneOrder::wait(const Turn& turn) {
  for (int lane = 1; lane < kLaneCount; ++lane) {
    Beside& beside = beside_[at(lane)];
    const NodeId node = turn.waits[at(lane)];
    if (!beside.is_apart || node == kNoNode) continue;
    const std::size_t batch = batch_of_[static_cast<std::size_t>(node)];
    events_->wait(end_event(batch), 0);
    beside.is_apart = batch != beside.last_batch;
  }
}

void LaneOrder::fork(NodeId node) {
  const Turn& turn = turns_[static_cast<std::size_t>(node)];
  Beside& beside = beside_[at(turn.lane)];
  beside.last_batch = batch_of_[static_cast<std::size_t>(node)];
  beside.is_apart = true;
  const bool is_first = !std::exchange(beside.is_begun, true);
  if (!is_first && turn.waits[0] == kNoNode) return;
  events_->set(fork_event(beside.last_batch), 0);
  events_->wait(fork_event(beside.last_batch), turn.lane);
}

void LaneOrder::close_batch() {
  if (!std::exchange(is_in_batch_, false)) return;
  try {
    device_.group()->end_batch();
  } catch (const Error&) {  // the failure that left it open is the one to report
  }
}

void LaneOrder::join() {
  close_batch();
  for (int lane = 1; lane < kLaneCount; ++lane) {
    const Beside& beside = beside_[at(lane)];
    if (!beside.is_apart) continue;
    events_->set(end_event(beside.last_batch), lane);
    events_->wait(end_event(beside.last_batch), 0);
  }
  forget();
}

void LaneOrder::forget() {
  close_batch();
  beside_ = {};
  if (device_.group() != nullptr) device_.group()->use_lane(0);
}

}  // namespace tracestep
