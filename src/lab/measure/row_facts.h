// The state of device and host around a row, as results have it.
#pragma once

#include "base/json.h"
#include "lab/measure/host_facts.h"
#include "lab/report/fields.h"
#include "runtime/device_facts.h"

namespace tracestep {

// Writes a device's state for a result: an object with a member per known fact, its unit in the
// name; null when nothing is known.
Json to_json(const DeviceFacts& facts);

// The state of the host before and after a row's steps, warm-up included.
struct HostAround {
  HostFacts before, after;
};

// Returns the columns "host_before", "host_after" and "others_cores"; data only.
Fields<HostAround> host_columns();

}  // namespace tracestep
