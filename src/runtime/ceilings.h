// A device's highest speeds as its back end measured them; rooflines are drawn with these.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "base/dtype.h"

namespace tracestep {

struct Ceilings {
  double bandwidth_gb_s = 0;     // Bytes moved per second, with arrays larger than the caches.
  double arithmetic_gflops = 0;  // The speed of arithmetic other than matrix products.
  // The speed of matrix products by the dtype of their operands.
  std::map<DType, double> products_gflops = {};
  std::string how = {};  // one line: how they were measured
  // The cores that other processes kept busy during the measurement; nullopt: not known.
  std::optional<double> others_cores = {};

  bool known() const { return bandwidth_gb_s > 0 && arithmetic_gflops > 0; }
};

}  // namespace tracestep
