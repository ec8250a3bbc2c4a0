#include "analysis/roofline.h"

#include "ir/op_def.h"

namespace tracestep {

RoofTime roof_time(const Cost& cost, double tflops, double bandwidth_gb_s) {
  const auto bytes = static_cast<double>(cost.bytes_read + cost.bytes_written);
  return {.computing_us = static_cast<double>(cost.flops) / (tflops * 1e6),
          .moving_us = bytes / (bandwidth_gb_s * 1e3)};
}

double DevicePeaks::product_tflops(const Precision& precision) const {
  if (precision.float8) return fp8_tflops;
  const DType operands = precision.autocast.value_or(precision.parameters);
  if (operands == DType::kBF16) return bf16_tflops;
  if (operands == DType::kF16) return fp16_tflops;
  if (precision.split && !multiplies_by_parts) return 0;
  if (precision.split) return (fp16_tflops > 0 ? fp16_tflops : bf16_tflops) / 3;
  return precision.tf32 ? tf32_tflops : fp32_tflops;
}

RoofTime roof_time(const Program& program, const Node& node, const DevicePeaks& peaks, bool tf32) {
  double tflops = 0;
  if (is_product(node)) {
    const DType operands = program.type(node.inputs[0]).dtype;
    tflops = is_float8(operands)
                 ? peaks.product_tflops({.autocast = DType::kBF16, .float8 = true})
                 : peaks.product_tflops(
                       {.parameters = operands, .tf32 = tf32, .split = is_by_parts(node)});
  }
  return roof_time(cost_of(program, node), tflops > 0 ? tflops : peaks.fp32_tflops,
                   peaks.bandwidth_gb_s);
}

}  // namespace tracestep
