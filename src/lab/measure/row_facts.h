// The state of device and host around a row, as results have it.
#pragma once

#include "base/json.h"
#include "lab/measure/host_facts.h"
#include "lab/report/fields.h"
#include "runtime/device_facts.h"

namespace tracestep {

// A device's state as it stands in results. One member per known fact, its unit in the name; null
// when nothing is known.
Json to_json(const DeviceFacts& facts);

// The state of the host around a row's steps, warm-up included, as columns.
struct HostAround {
  HostFacts before, after;
};

// The columns "host_before", "host_after" and "others_cores"; data only.
Fields<HostAround> host_columns();

}  // namespace tracestep
