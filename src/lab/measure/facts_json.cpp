#include "lab/measure/row_facts.h"

namespace tracestep {

Json to_json(const DeviceFacts& facts) {
  if (facts.empty()) return {};
  Json out = Json::object();
  const auto add = [&out](const char* name, const auto& fact) {
    if (fact) out[name] = *fact;
  };
  add("sm_clock_mhz", facts.sm_clock_mhz);
  add("memory_clock_mhz", facts.memory_clock_mhz);
  add("power_w", facts.power_w);
  add("power_limit_w", facts.power_limit_w);
  add("energy_j", facts.energy_j);
  add("temperature_c", facts.temperature_c);
  add("memory_used_bytes", facts.memory_used_bytes);
  add("process_count", facts.process_count);
  add("power_limited_ns", facts.power_limited_ns);
  add("heat_limited_ns", facts.heat_limited_ns);
  out["clock_reasons"] = Json::array();
  for (const std::string& reason : facts.clock_reasons) out["clock_reasons"].push_back(reason);
  return out;
}

}  // namespace tracestep
