// A snapshot's allocations in order, to be replayed with other settings of the allocator.
#pragma once

#include <unordered_map>

#include "lab/pytorch/allocation_list.h"
#include "lab/report/table.h"

namespace tracestep {

struct SnapshotFacts;

// Births and deaths by address, as a list. A birth at an address that is alive ends what was there.
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

// "settings": the recording's most reserved bytes, and what its events would have reserved with the
// default settings of the allocator, with expandable segments and with others. Without rows where
// there are no events, or bytes beyond what a card has.
Table snapshot_settings_table(const SnapshotFacts& facts);

}  // namespace tracestep
