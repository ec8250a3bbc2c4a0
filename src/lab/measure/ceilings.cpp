#include "lab/measure/ceilings.h"

namespace tracestep {

RoofTime roof_time(const Cost& cost, bool is_product, DType dtype, const Ceilings& ceilings) {
  if (!ceilings.known()) return {};
  const auto found = ceilings.products_gflops.find(dtype);
  const bool has_own = is_product && found != ceilings.products_gflops.end();
  const double gflops = has_own ? found->second : ceilings.arithmetic_gflops;
  return roof_time(cost, gflops * 1e-3, ceilings.bandwidth_gb_s);
}

}  // namespace tracestep
