// Records of a run about itself: time spans of nodes, memory events and counters, as append-only
// lists. Other code interprets them with the program; lab/report formats them.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/category.h"
#include "base/enum_words.h"

namespace tracestep {

// In place of a node's number: work that belongs to the whole step, such as loading a batch.
inline constexpr std::int32_t kWholeStep = -1;

// Returns the nanoseconds of a clock that never goes back. Only differences between two readings
// are meaningful.
inline std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

enum class MemoryAction : std::uint8_t { kAlloc, kFree, kSegmentAlloc, kSegmentFree, kOom };
TRACESTEP_WORDS(MemoryAction, "alloc", "free", "segment_alloc", "segment_free", "oom");

// An event of a block (requested by a node) or of a segment (requested by the allocator from the
// device). A free repeats the sizes of its allocation.
struct MemoryEvent {
  MemoryAction action = MemoryAction::kAlloc;
  Category category = Category::kTemporary;
  std::int32_t node = kWholeStep;
  std::uint64_t address = 0;         // 0 for kOom
  std::int64_t requested_bytes = 0;  // The bytes that the program asked for.
  std::int64_t rounded_bytes = 0;    // The bytes that the allocator set aside for it.
  std::int64_t time_ns = 0;
  // The requested bytes of all live blocks after this event.
  std::int64_t live_requested_bytes = 0;
};

// The time span of a node's work, or of the whole step if `node` is kWholeStep.
struct Span {
  std::int32_t node = kWholeStep;
  std::int64_t start_ns = 0;
  std::int64_t end_ns = 0;
};

// What every Recorder counts, whatever its options say: an addition costs nothing.
enum class Counter : std::uint8_t { kAllocations, kSegmentAllocations };
TRACESTEP_WORDS(Counter, "allocations", "segment_allocations");

// Keeps what a run records. Not thread-safe: used by the thread that issues the step.
class Recorder {
 public:
  struct Options {
    bool spans = false;
    bool memory = false;
  };

  Recorder() = default;
  explicit Recorder(Options options) : options_(options) {}

  bool records_spans() const { return options_.spans; }
  bool records_memory() const { return options_.memory; }

  // Reserves memory, so that recording does not allocate in the middle of a measured step.
  void reserve(std::size_t spans, std::size_t memory_events);
  // Removes spans, events and counts; keeps the reserved memory.
  void clear();

  // Adds a record; ignored if this kind is not recorded.
  void add(const Span& span) {
    if (options_.spans) spans_.push_back(span);
  }
  void add(const MemoryEvent& event) {
    if (options_.memory) memory_events_.push_back(event);
  }
  void count(Counter counter, std::int64_t n = 1) {
    counts_[static_cast<std::size_t>(counter)] += n;
  }

  const std::vector<Span>& spans() const { return spans_; }
  const std::vector<MemoryEvent>& memory_events() const { return memory_events_; }
  std::int64_t count_of(Counter counter) const {
    return counts_[static_cast<std::size_t>(counter)];
  }
  // Returns the largest live_requested_bytes of all events; 0 without any.
  std::int64_t peak_requested_bytes() const;

 private:
  Options options_;
  std::vector<Span> spans_;
  std::vector<MemoryEvent> memory_events_;
  std::array<std::int64_t, kAll<Counter>.size()> counts_{};
};

// Records the span of a block of code; `recorder` may be nullptr.
class SpanTimer {
 public:
  SpanTimer(Recorder* recorder, std::int32_t node)
      : recorder_(recorder != nullptr && recorder->records_spans() ? recorder : nullptr),
        span_{node, recorder_ != nullptr ? now_ns() : 0, 0} {}
  ~SpanTimer() {
    if (recorder_ == nullptr) return;
    span_.end_ns = now_ns();
    recorder_->add(span_);
  }
  SpanTimer(const SpanTimer&) = delete;
  SpanTimer& operator=(const SpanTimer&) = delete;

 private:
  Recorder* recorder_;
  Span span_;
};

}  // namespace tracestep
