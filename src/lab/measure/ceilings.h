// What a device can do at best, as measured by its back end: what the roofline is drawn with.
#pragma once

#include <map>
#include <string>

#include "analysis/cost.h"
#include "base/dtype.h"

namespace tracestep {

struct Ceilings {
  double bandwidth_gb_s = 0;                     // bytes read and written, arrays beyond the caches
  double arithmetic_gflops = 0;                  // of everything but matrix products
  std::map<DType, double> products_gflops = {};  // matrix products, by the dtype of their operands
  std::string how = {};                          // one line: how they were measured

  bool known() const { return bandwidth_gb_s > 0 && arithmetic_gflops > 0; }
};

// The time below which a piece of work cannot come (Williams, Waterman and Patterson, "Roofline",
// 2009), and which of the two limits it.
struct RoofTime {
  double ms = 0;
  bool by_bytes = true;
};

// 0 ms when the ceilings are not known.
RoofTime roof_time(const Cost& cost, bool is_product, DType dtype, const Ceilings& ceilings);

}  // namespace tracestep
