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

Fields<HostAround> host_columns() {
  using H = const HostAround&;
  return {{data_only(structured_column(
               "host_before", "load, governor and CPU clocks of the host before the warm-up")),
           [](H h) { return to_json(h.before); }},
          {data_only(structured_column("host_after", "the same after the timed steps")),
           [](H h) { return to_json(h.after); }},
          {data_only(real_column("others_cores", "", "cores", 2,
                                 "CPU time that others took meanwhile, other machines of this host "
                                 "included, over the time that passed; empty below half a second")),
           [](H h) { return or_null(others_cores(h.before, h.after)); }}};
}

}  // namespace tracestep
