// Replays a step's requests to PyTorch's allocator: what is held and reserved over time, who holds
// memory at the peak, and where a card runs out.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lab/pytorch/allocation_list.h"
#include "lab/pytorch/caching_allocator.h"

namespace tracestep {

// The memory of a card, and the bytes in it that do not come from the step. Defaults were measured
// on an H100 and an H200.
struct PytorchCard {
  std::int64_t usable_bytes = 0;   // The usable memory of the whole device; 0: no limit.
  std::int64_t outside_bytes = 0;  // The bytes of outside_bytes_of().
  // The workspace of cuBLAS, on Hopper and later.
  std::int64_t workspace_bytes = std::int64_t{32} << 20;

  std::int64_t limit_bytes() const {
    return usable_bytes == 0 ? kNoLimitBytes : usable_bytes - outside_bytes;
  }
};

// The bytes that PyTorch takes outside its allocator: the driver's context, kernels and libraries'
// handles, 770 MiB, and as much again if the step uses cuDNN, as 16-bit attention and convolutions
// do.
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

// The request at which the allocator ran out of memory.
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
  std::vector<PytorchHolder> holders;  // The holders of memory at the peak, the largest first.
  std::vector<PytorchMoment> moments;  // A few hundred moments of the step, in order.
};

// Replays the list, up to the end or to where memory runs out. O(events · log).
PytorchReplay replay(const AllocationList& list, const AllocatorSettings& settings,
                     const PytorchCard& card, bool has_fraction = false);

// The smallest limit, to 2 MiB, with which the list still runs: at most what is reserved without a
// limit, and less if the allocator can return unused segments.
std::int64_t least_reserved_bytes(const AllocationList& list, const AllocatorSettings& settings,
                                  const PytorchCard& card);

}  // namespace tracestep
