// The devices of the ranks of this process, and the group that they are in.
#pragma once

#include <memory>
#include <vector>

#include "runtime/communicator.h"
#include "runtime/device.h"

namespace tracestep {

class RankDevices {
 public:
  // A single device, which must outlive this object.
  explicit RankDevices(Device& first);
  // Adds the other devices of this process. Each device joins its end of `group` (in the order of
  // the ranks) as long as this object lives.
  RankDevices(Device& first, std::vector<std::unique_ptr<Device>> others,
              std::vector<std::unique_ptr<Communicator>> group);
  ~RankDevices();
  RankDevices(const RankDevices&) = delete;
  RankDevices& operator=(const RankDevices&) = delete;

  const std::vector<Device*>& all() const { return all_; }  // of this process, by rank
  Device& first() const { return *all_.front(); }
  // The first device's end of the group; nullptr: there is none.
  Communicator* group() const { return group_.empty() ? nullptr : group_.front().get(); }

 private:
  std::vector<std::unique_ptr<Communicator>> group_;  // by rank
  std::vector<std::unique_ptr<Device>> others_;
  std::vector<Device*> all_;
};

}  // namespace tracestep
