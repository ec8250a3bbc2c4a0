// The devices of the ranks in this process, and the group that connects the ranks.
#pragma once

#include <memory>
#include <vector>

#include "runtime/communicator.h"
#include "runtime/device.h"

namespace tracestep {

class RankDevices {
 public:
  // Has a single device, which must outlive this object.
  explicit RankDevices(Device& first);
  // Adds the other devices of this process. As long as this object lives, each device uses its
  // communicator of `group`, which is in the order of ranks.
  RankDevices(Device& first, std::vector<std::unique_ptr<Device>> others,
              std::vector<std::unique_ptr<Communicator>> group);
  ~RankDevices();
  RankDevices(const RankDevices&) = delete;
  RankDevices& operator=(const RankDevices&) = delete;

  const std::vector<Device*>& all() const { return all_; }  // The devices of this process, by rank.
  Device& first() const { return *all_.front(); }
  // Returns the first device's communicator; nullptr: there is no group.
  Communicator* group() const { return group_.empty() ? nullptr : group_.front().get(); }

 private:
  std::vector<std::unique_ptr<Communicator>> group_;  // The communicators by rank.
  std::vector<std::unique_ptr<Device>> others_;
  std::vector<Device*> all_;
};

}  // namespace tracestep
