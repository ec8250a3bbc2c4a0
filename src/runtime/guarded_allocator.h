// The guarded allocator: finds stray writes and reads. Every block is a mapping of its own:
//
//   | zone | user bytes, aligned exactly as the source promises | zone, rounded up |
//
// Zones hold a pattern that is verified when the block is freed. User bytes start as 0xFF, which
// is NaN in every float dtype and -1 in the integer ones. A freed block waits in a bounded
// quarantine, filled with another NaN pattern, and is verified again when it leaves. In sanitizer
// builds the sanitizer reports any access to zones and freed blocks.
#pragma once

#include <cstddef>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "runtime/accounted_allocator.h"

namespace tracestep {

// An allocator whose free, check_all and trim throw DeviceError, after they have done their work,
// with the tag of a damaged block and the bytes that were overwritten.
class GuardedAllocator final : public AccountedAllocator {
 public:
  // Takes memory from `source`; throws Error{kUsage} when that has no real memory.
  GuardedAllocator(std::string device, MemorySource& source);
  ~GuardedAllocator() override;  // Logs damage instead of throwing.

  void* allocate(std::int64_t bytes, const AllocationTag& tag) override;
  void free(void* address) override;
  void trim() override;  // Empties the quarantine, which verifies its blocks.
  std::vector<LiveAllocation> live() const override;
  bool is_guarded() const override { return true; }

  // Verifies all live blocks and all blocks in quarantine.
  void check_all();

 private:
  struct Block {
    std::byte* mapping = nullptr;
    std::byte* user = nullptr;
    std::int64_t mapped_bytes = 0;
    std::int64_t bytes = 0;
    AllocationTag tag;
    std::string label;  // A copy, because a block in quarantine may outlive its tag's label.

    std::byte* end() const { return mapping + mapped_bytes; }
  };
  struct ByteRange {
    std::int64_t first, last;  // inclusive
  };
  using Damage = std::optional<std::string>;

  // Allow or forbid access by the address sanitizer's poison; do nothing for device memory.
  void allow(const void* begin, std::int64_t bytes) const;
  void forbid(const void* begin, std::int64_t bytes) const;
  void fill(std::byte* begin, std::int64_t bytes, std::uint16_t pattern);
  // Returns the smallest range with all bytes that differ from the pattern; nullopt: none differ.
  std::optional<ByteRange> changed(const std::byte* begin, std::int64_t bytes,
                                   std::uint16_t pattern) const;
  Damage damage_of(const Block& block, bool freed) const;
  void release(const Block& block);
  Damage empty_quarantine(std::int64_t bytes_to_keep);
  void throw_if(const char* call, const Damage& damage) const;

  const std::int64_t alignment_, zone_bytes_, quarantine_limit_;
  std::map<std::uint64_t, Block> live_;  // Live blocks by the address of their user bytes.
  std::deque<Block> quarantine_;         // oldest first
  std::int64_t quarantine_bytes_ = 0;
};

}  // namespace tracestep
