// What makers publish of devices that need not be here.
#pragma once

#include <string_view>

#include "lab/report/table.h"

namespace tracestep {

// Rows: devices; columns: dense peaks of products by precision, memory, links and power, and where
// each comes from. What a maker does not state is null.
Table device_table();

// Adds the column "published" to a table of measured ceilings (lab/profile/tables.h): what the
// maker of the device with this name says of its bandwidth and products. Nothing for other devices.
void add_published_peaks(std::string_view device, Table& ceilings);

}  // namespace tracestep
