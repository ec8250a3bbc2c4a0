// Reports named ranges of host time to an attached profiler. Names are registered once, so that
// opening a range costs one call with a number.
#pragma once

#include <string_view>

namespace tracestep {

class RangeSink {
 public:
  virtual ~RangeSink() = default;
  // Returns the number of a name; equal names have equal numbers.
  virtual int register_name(std::string_view name) = 0;
  // Opens a range of this thread; pop() closes the one opened last.
  virtual void push(int id) = 0;
  virtual void pop() = 0;
};

// Reports a range for a block of code; `sink` may be nullptr.
class ScopedRange {
 public:
  ScopedRange(RangeSink* sink, std::string_view name) : sink_(sink) {
    if (sink_ != nullptr) sink_->push(sink_->register_name(name));
  }
  ~ScopedRange() {
    if (sink_ != nullptr) sink_->pop();
  }
  ScopedRange(const ScopedRange&) = delete;
  ScopedRange& operator=(const ScopedRange&) = delete;

 private:
  RangeSink* sink_;
};

}  // namespace tracestep
