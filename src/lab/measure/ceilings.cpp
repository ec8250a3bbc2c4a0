#include "lab/measure/ceilings.h"

#include <algorithm>

namespace tracestep {

RoofTime roof_time(const Cost& cost, bool is_product, DType dtype, const Ceilings& ceilings) {
  if (!ceilings.known()) return {};
  const auto found = ceilings.products_gflops.find(dtype);
  const bool has_own = is_product && found != ceilings.products_gflops.end();
  const double gflops = has_own ? found->second : ceilings.arithmetic_gflops;
  const double by_flops = static_cast<double>(cost.flops) / gflops * 1e-6;
  const auto bytes = static_cast<double>(cost.bytes_read + cost.bytes_written);
  const double by_bytes = bytes / ceilings.bandwidth_gb_s * 1e-6;
  return {std::max(by_flops, by_bytes), by_bytes >= by_flops};
}

}  // namespace tracestep
