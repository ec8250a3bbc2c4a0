#include "analysis/roofline.h"

namespace tracestep {

RoofTime roof_time(const Cost& cost, double tflops, double bandwidth_gb_s) {
  const auto bytes = static_cast<double>(cost.bytes_read + cost.bytes_written);
  return {.computing_us = static_cast<double>(cost.flops) / (tflops * 1e6),
          .moving_us = bytes / (bandwidth_gb_s * 1e3)};
}

RoofTime roof_time(const Program& program, const Node& node, const DevicePeaks& peaks) {
  const bool is_narrow = is_product(node) && is_low_precision(program.type(node.inputs[0]).dtype);
  return roof_time(cost_of(program, node), is_narrow ? peaks.bf16_tflops : peaks.fp32_tflops,
                   peaks.bandwidth_gb_s);
}

}  // namespace tracestep
