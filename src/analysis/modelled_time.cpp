#include "analysis/roofline.h"

#include "ir/op_def.h"

namespace tracestep {
namespace {

struct TypicalDevice {
  DevicePeaks peaks;
  double launch_us = 0;
};

// Attention in tiles reaches this share of the rate of products, as measured on an H200.
constexpr double kShareOfAttention = 0.7;

const TypicalDevice& typical(DeviceKind kind) {
  static const TypicalDevice gpu{{"GPU", 50, 500, 3000, 0, 0, 500}, 3};
  static const TypicalDevice cpu{{"CPU", 1, 1, 100, 0, 0, 1}, 1};
  return DeviceTraits{.kind = kind}.has_own_memory() ? gpu : cpu;
}

}  // namespace

double modelled_us(const Program& program, const Node& node, DeviceKind kind) {
  if (makes_views(program, node)) return 0.0;
  const TypicalDevice& device = typical(kind);
  const bool is_attention = node.op->kernel_class == KernelClass::kAttention;
  const double us = roof_time(program, node, device.peaks).us();
  return device.launch_us + (is_attention ? us / kShareOfAttention : us);
}

double modelled_us(const Program& program, Phase phase, DeviceKind kind) {
  double out = 0.0;
  for (const Node& node : program.nodes) {
    if (node.origin().phase == phase) out += modelled_us(program, node, kind);
  }
  return out;
}

}  // namespace tracestep
