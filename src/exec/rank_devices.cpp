#include "exec/rank_devices.h"

namespace tracestep {

RankDevices::RankDevices(Device& first) : all_{&first} {}

RankDevices::RankDevices(Device& first, std::vector<std::unique_ptr<Device>> others,
                         std::vector<std::unique_ptr<Communicator>> group)
    : group_(std::move(group)), others_(std::move(others)), all_{&first} {
  for (const auto& device : others_) all_.push_back(device.get());
  TRACESTEP_CHECK(all_.size() == group_.size(), "{} devices in a group of {}", all_.size(),
                  group_.size());
  for (std::size_t rank = 0; rank < all_.size(); ++rank) all_[rank]->join(group_[rank].get());
}

RankDevices::~RankDevices() {
  if (!group_.empty()) first().join(nullptr);
}

}  // namespace tracestep
