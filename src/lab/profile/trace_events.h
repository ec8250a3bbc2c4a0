// Writes events in Chrome's trace format, as text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tracestep {

std::string json_text(std::string_view text);  // The text in quotes, as JSON has it.

// Converts times relative to a base, because a double cannot hold nanoseconds since 1970 exactly.
class TraceClock {
 public:
  TraceClock();
  std::int64_t base_ns() const { return base_ns_; }
  // Returns the time in microseconds since the base, with the nanoseconds as decimals.
  std::string us(std::int64_t time_ns) const;
  static std::string micros(std::int64_t ns);

 private:
  std::int64_t base_ns_ = 0, shift_ns_ = 0;
};

// The process and the thread, or the device and the stream, of an event.
struct TracePlace {
  std::int64_t pid = 0, tid = 0;
};
struct TraceRange {
  std::int64_t start_ns = 0, end_ns = 0;
};

// Collects events as a JSON list.
class TraceEvents {
 protected:
  void meta(const char* what, TracePlace place, const char* key, const std::string& value);
  // Writes an event with begin and end; `args` is the inside of an object, or empty.
  void complete(const char* category, std::string_view name, TracePlace place, TraceRange range,
                const std::string& args);
  // Writes the start ('s') or the end ('f') of an arrow; `phase` says which.
  void flow(char phase, TracePlace place, std::int64_t time_ns, std::uint32_t id);
  void counter(const char* name, TracePlace place, std::int64_t time_ns, std::int64_t bytes);

  const TraceClock clock_;
  std::string out_;

 private:
  void begin();

  bool is_first_ = true;
};

}  // namespace tracestep
