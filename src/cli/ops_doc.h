// What the op records say, as a page (docs/ops.md) and as a table.
#pragma once

#include <string>

#include "lab/report/table.h"

namespace tracestep::cli {

// docs/ops.md, from the records of all registered ops.
std::string ops_page();
Table ops_table();

}  // namespace tracestep::cli
