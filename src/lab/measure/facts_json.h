// A device's state as it stands in results.
#pragma once

#include "base/json.h"
#include "runtime/device_facts.h"

namespace tracestep {

// One member per known fact, its unit in the name; null when nothing is known.
Json to_json(const DeviceFacts& facts);

}  // namespace tracestep
