// Replays what a step asks of PyTorch's allocator: what it holds and reserves over time, who holds
// the peak, and where a card has no more.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lab/pytorch/allocation_list.h"
#include "lab/pytorch/caching_allocator.h"

namespace tracestep {

// The card's side: bytes that do not come from the step. Measured on an H100 and an H200.
struct PytorchCard {
  std::int64_t usable_bytes = 0;                          // of the whole device; 0: no limit
  std::int64_t outside_bytes = 0;                         // outside_bytes_of()
  std::int64_t workspace_bytes = std::int64_t{32} << 20;  // of cuBLAS, on Hopper and later

  std::int64_t limit_bytes() const {
    return usable_bytes == 0 ? kNoLimitBytes : usable_bytes - outside_bytes;
  }
};

// The context of the driver, PyTorch's kernels and its libraries' handles: 770 MiB, and as much
// again where cuDNN has a part, as in attention of 16 bits and in convolutions.
std::int64_t outside_bytes_of(const AllocationList& list);

struct PytorchHolder {
  std::uint32_t module = 0, site = 0;
  PytorchPart part = PytorchPart::kSetup;
  std::int64_t bytes = 0, blocks = 0;
};

struct PytorchMoment {
  std::int64_t event = 0, step = 0;
  PytorchPart part = PytorchPart::kSetup;
  std::int64_t allocated_bytes = 0, reserved_bytes = 0;
};

// Where the allocator had no more.
struct PytorchOutOfMemory {
  std::size_t event = 0;
  std::int64_t asked_bytes = 0, step = 0;
  CachingAllocator::Statistics then;
  CachingAllocator::Unused unused;
};

struct PytorchReplay {
  CachingAllocator::Statistics statistics;
  std::size_t peak_event = 0;
  std::int64_t reserved_at_peak_bytes = 0, workspaces = 0;
  CachingAllocator::Unused unused_at_peak;
  std::optional<PytorchOutOfMemory> out_of_memory;
  std::vector<PytorchHolder> holders;  // at the peak, the largest first
  std::vector<PytorchMoment> moments;  // some hundred, in order
};

// Ends where memory runs out. O(events · log).
PytorchReplay replay(const AllocationList& list, const AllocatorSettings& settings,
                     const PytorchCard& card, bool has_fraction = false);

// The least bytes that the allocator could have and the list still run, to 2 MiB: at most what it
// reserves without a limit, and less where it gives unused segments back.
std::int64_t least_reserved_bytes(const AllocationList& list, const AllocatorSettings& settings,
                                  const PytorchCard& card);

}  // namespace tracestep
