#include "lab/profile/trace_events.h"

#include <algorithm>
#include <chrono>
#include <ctime>
#include <iterator>

#include <fmt/format.h>

#include "base/json.h"
#include "record/recorder.h"

namespace tracestep {
namespace {

constexpr std::int64_t kNsPerSecond = 1'000'000'000;

// Returns the first second (UTC) of the quarter of the year in which `second` lies.
std::int64_t quarter_start(std::int64_t second) {
  const auto at = static_cast<std::time_t>(second);
  std::tm date{};
  gmtime_r(&at, &date);
  date.tm_mon -= date.tm_mon % 3;
  date.tm_mday = 1;
  date.tm_hour = date.tm_min = date.tm_sec = 0;
  return static_cast<std::int64_t>(timegm(&date));
}

}  // namespace

std::string json_text(std::string_view text) {
  return Json(text).dump();
}

TraceClock::TraceClock() {
  const std::int64_t unix_ns = std::chrono::duration_cast<std::chrono::nanoseconds>(
                                   std::chrono::system_clock::now().time_since_epoch())
                                   .count();
  base_ns_ = quarter_start(unix_ns / kNsPerSecond) * kNsPerSecond;
  shift_ns_ = unix_ns - now_ns() - base_ns_;
}

std::string TraceClock::us(std::int64_t time_ns) const {
  return micros(std::max<std::int64_t>(0, time_ns + shift_ns_));
}

std::string TraceClock::micros(std::int64_t ns) {
  return fmt::format("{}.{:03}", ns / 1000, ns % 1000);
}

void TraceEvents::begin() {
  out_ += is_first_ ? "\n" : ",\n";
  is_first_ = false;
}

void TraceEvents::meta(const char* what, TracePlace place, const char* key,
                       const std::string& value) {
  begin();
  fmt::format_to(std::back_inserter(out_),
                 R"({{"ph": "M", "name": "{}", "pid": {}, "tid": {}, "ts": 0.000, )"
                 R"("args": {{"{}": {}}}}})",
                 what, place.pid, place.tid, key, value);
}

void TraceEvents::complete(const char* category, std::string_view name, TracePlace place,
                           TraceRange r, const std::string& args) {
  begin();
  fmt::format_to(std::back_inserter(out_),
                 R"({{"ph": "X", "cat": "{}", "name": {}, "pid": {}, "tid": {}, )"
                 R"("ts": {}, "dur": {}, "args": {{{}}}}})",
                 category, json_text(name), place.pid, place.tid, clock_.us(r.start_ns),
                 TraceClock::micros(std::max<std::int64_t>(0, r.end_ns - r.start_ns)), args);
}

void TraceEvents::flow(char phase, TracePlace place, std::int64_t time_ns, std::uint32_t id) {
  begin();
  fmt::format_to(std::back_inserter(out_),
                 R"({{"ph": "{}", "cat": "ac2g", "name": "ac2g", "id": {}, "pid": {}, )"
                 R"("tid": {}, "ts": {}{}}})",
                 phase, id, place.pid, place.tid, clock_.us(time_ns),
                 phase == 'f' ? R"(, "bp": "e")" : "");
}

void TraceEvents::counter(const char* name, TracePlace place, std::int64_t time_ns,
                          std::int64_t bytes) {
  begin();
  fmt::format_to(std::back_inserter(out_),
                 R"({{"ph": "C", "name": "{}", "pid": {}, "tid": {}, "ts": {}, )"
                 R"("args": {{"bytes": {}}}}})",
                 name, place.pid, place.tid, clock_.us(time_ns), bytes);
}

}  // namespace tracestep
