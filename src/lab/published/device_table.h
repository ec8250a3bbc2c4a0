// What makers publish of devices that need not be here.
#pragma once

#include "lab/report/table.h"

namespace tracestep {

// Rows: devices; columns: dense peaks of products in float32 and bfloat16, memory bandwidth, and
// the bytes that a program gets. Published figures, not measured ones.
Table device_table();

}  // namespace tracestep
