// The state of the host around a row's steps, warm-up included, as columns.
#pragma once

#include "lab/measure/host_facts.h"
#include "lab/report/fields.h"

namespace tracestep {

struct HostAround {
  HostFacts before, after;
};

// "host_before", "host_after" and "others_cores"; data only.
Fields<HostAround> host_columns();

}  // namespace tracestep
