#include "analysis/modelled_time.h"

#include <algorithm>

#include "analysis/cost.h"
#include "ir/op_def.h"

namespace tracestep {

NominalRates nominal_rates(DeviceKind kind) {
  if (kind == DeviceKind::kCuda) {
    return {.product_flops_per_us = 5e7,
            .narrow_product_flops_per_us = 5e8,
            .bytes_per_us = 3e6,
            .launch_us = 3};
  }
  return {.product_flops_per_us = 1e6,
          .narrow_product_flops_per_us = 1e6,
          .bytes_per_us = 1e5,
          .launch_us = 1};
}

double modelled_us(const Program& program, const Node& node, DeviceKind kind) {
  if (makes_views(program, node)) return 0.0;
  const NominalRates rates = nominal_rates(kind);
  const Cost cost = cost_of(program, node);
  double computing = 0.0;
  if (is_product(node)) {
    const bool narrow = is_low_precision(program.type(node.inputs[0]).dtype);
    computing = static_cast<double>(cost.flops) /
                (narrow ? rates.narrow_product_flops_per_us : rates.product_flops_per_us);
  }
  const double moving =
      static_cast<double>(cost.bytes_read + cost.bytes_written) / rates.bytes_per_us;
  return rates.launch_us + std::max(computing, moving);
}

double modelled_us(const Program& program, Phase phase, DeviceKind kind) {
  double out = 0.0;
  for (const Node& node : program.nodes) {
    if (node.origin().phase == phase) out += modelled_us(program, node, kind);
  }
  return out;
}

}  // namespace tracestep
