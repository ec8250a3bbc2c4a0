#include "record/recorder.h"

#include <algorithm>

namespace tracestep {

std::string_view name_of(MemoryAction action) {
  switch (action) {
    case MemoryAction::kAlloc: return "alloc";
    case MemoryAction::kFree: return "free";
    case MemoryAction::kSegmentAlloc: return "segment_alloc";
    case MemoryAction::kSegmentFree: return "segment_free";
    case MemoryAction::kOom: return "oom";
  }
  return "unknown";
}

std::string_view name_of(Counter counter) {
  switch (counter) {
    case Counter::kAllocations: return "allocations";
    case Counter::kSegmentAllocations: return "segment_allocations";
  }
  return "unknown";
}

void Recorder::reserve(std::size_t spans, std::size_t memory_events) {
  spans_.reserve(spans);
  memory_events_.reserve(memory_events);
}

void Recorder::clear() {
  spans_.clear();
  memory_events_.clear();
  counts_.fill(0);
}

std::int64_t Recorder::peak_requested_bytes() const {
  std::int64_t peak = 0;
  for (const MemoryEvent& event : memory_events_) {
    peak = std::max(peak, event.live_requested_bytes);
  }
  return peak;
}

}  // namespace tracestep
