// A device's highest speeds as measured by its back end, with which rooflines are drawn.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "base/dtype.h"

namespace tracestep {

struct Ceilings {
  double bandwidth_gb_s = 0;                     // bytes moved, arrays beyond the caches
  double arithmetic_gflops = 0;                  // of everything but matrix products
  std::map<DType, double> products_gflops = {};  // matrix products, by the dtype of their operands
  std::string how = {};                          // one line: how they were measured
  std::optional<double> others_cores = {};       // that others kept busy meanwhile; none: not known

  bool known() const { return bandwidth_gb_s > 0 && arithmetic_gflops > 0; }
};

}  // namespace tracestep
