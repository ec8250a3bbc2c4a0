#include "record/recorder.h"

#include <algorithm>

namespace tracestep {

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
