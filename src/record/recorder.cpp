#include "record/recorder.h"

#include <algorithm>

#include "base/indexed.h"

namespace tracestep {

std::string_view name_of(MemoryAction action) {
  return word_of<MemoryAction::kOom>(action,
                                     {"alloc", "free", "segment_alloc", "segment_free", "oom"});
}

std::string_view name_of(Counter counter) {
  return word_of<Counter::kSegmentAllocations>(counter, {"allocations", "segment_allocations"});
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
