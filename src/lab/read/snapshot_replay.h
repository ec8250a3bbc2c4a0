// Replays a snapshot's allocations in order with other settings of the allocator.
#pragma once

#include <unordered_map>

#include "lab/pytorch/allocation_list.h"
#include "lab/report/table.h"

namespace tracestep {

struct SnapshotFacts;

// Converts allocations and frees by address into a list of blocks. An allocation at an address that
// is in use ends the block there.
class AddressedList {
 public:
  void birth(std::int64_t address, std::int64_t bytes, std::int64_t stream) {
    death(address);
    if (bytes <= 0) return;
    alive_[address] = list_.blocks;
    list_.events.push_back({.block = list_.blocks++, .bytes = bytes, .stream = stream});
  }
  void death(std::int64_t address) {
    const auto found = alive_.find(address);
    if (found == alive_.end()) return;
    list_.events.push_back({.block = found->second});
    alive_.erase(found);
  }
  AllocationList take() && { return std::move(list_); }

 private:
  AllocationList list_;
  std::unordered_map<std::int64_t, std::uint32_t> alive_;
};

// The table "settings": the most reserved bytes of the recording, and what its events would have
// reserved with the allocator's default settings, with expandable segments and with other settings.
// Empty if there are no events, or if bytes exceed what a card has.
Table snapshot_settings_table(const SnapshotFacts& facts);

}  // namespace tracestep
