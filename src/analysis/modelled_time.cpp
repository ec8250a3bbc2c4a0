#include "analysis/roofline.h"

#include "ir/op_def.h"

namespace tracestep {
namespace {

struct TypicalDevice {
  DevicePeaks peaks;
  double launch_us = 0;
};

const TypicalDevice& typical(DeviceKind kind) {
  static const TypicalDevice gpu{{"GPU", 50, 500, 3000, 0, 0, 500}, 3};
  static const TypicalDevice cpu{{"CPU", 1, 1, 100, 0, 0, 1}, 1};
  return DeviceTraits{.kind = kind}.has_own_memory() ? gpu : cpu;
}

}  // namespace

double modelled_us(const Program& program, const Node& node, DeviceKind kind) {
  if (makes_views(program, node)) return 0.0;
  const TypicalDevice& device = typical(kind);
  return device.launch_us + roof_time(program, node, device.peaks).us();
}

double modelled_us(const Program& program, Phase phase, DeviceKind kind) {
  double out = 0.0;
  for (const Node& node : program.nodes) {
    if (node.origin().phase == phase) out += modelled_us(program, node, kind);
  }
  return out;
}

}  // namespace tracestep
