#include "runtime/device_facts.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace tracestep {
namespace {

// Adds `what` and how long it held clocks down, by two readings of a counter that misses no time.
void add_held(std::vector<std::string>& out, const char* what,
              const std::optional<std::int64_t>& before, const std::optional<std::int64_t>& after) {
  if (!before || !after || *after <= *before) return;
  out.push_back(
      fmt::format("{} for {:.1f} ms", what, static_cast<double>(*after - *before) * 1e-6));
}

}  // namespace

std::string throttled_between(const DeviceFacts& before, const DeviceFacts& after) {
  std::vector<std::string> out = before.throttle_reasons;
  for (const std::string& reason : after.throttle_reasons) {
    if (std::ranges::find(out, reason) == out.end()) out.push_back(reason);
  }
  add_held(out, "held by the power limit", before.power_limited_ns, after.power_limited_ns);
  add_held(out, "held by the temperature", before.heat_limited_ns, after.heat_limited_ns);
  return fmt::format("{}", fmt::join(out, ", "));
}

}  // namespace tracestep
