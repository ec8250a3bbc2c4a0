// A device's highest speeds as measured by its back end, with which rooflines are drawn.
#pragma once

#include <map>
#include <string>

#include "analysis/cost.h"
#include "base/dtype.h"

namespace tracestep {

struct Ceilings {
  double bandwidth_gb_s = 0;                     // bytes moved, arrays beyond the caches
  double arithmetic_gflops = 0;                  // of everything but matrix products
  std::map<DType, double> products_gflops = {};  // matrix products, by the dtype of their operands
  std::string how = {};                          // one line: how they were measured

  bool known() const { return bandwidth_gb_s > 0 && arithmetic_gflops > 0; }
};

// The shortest possible time of a piece of work by the roofline model (Williams, Waterman and
// Patterson, "Roofline", 2009), and whether bytes or FLOPs limit it.
struct RoofTime {
  double ms = 0;
  bool by_bytes = true;
};

// 0 ms when the ceilings are not known.
RoofTime roof_time(const Cost& cost, bool is_product, DType dtype, const Ceilings& ceilings);

}  // namespace tracestep
