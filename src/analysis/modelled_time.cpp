#include "analysis/modelled_time.h"

#include <algorithm>

#include "analysis/roofline.h"
#include "base/indexed.h"
#include "ir/op_def.h"

namespace tracestep {
namespace {

struct TypicalDevice {
  DevicePeaks peaks;
  double launch_us = 0;
};

// The share of the rate of products that attention in tiles reaches, as measured on an H200.
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

namespace {

// Models the times of nodes as parts of fused kernels.
class FusedCosts {
 public:
  FusedCosts(const Program& program, DeviceKind kind)
      : program_(program), device_(typical(kind)), stays_(program.values.size(), false) {
    for (const Node& node : program.nodes) {
      if (makes_views(program, node)) continue;
      for (ValueId id : node.inputs) {
        const ValueId base = program.value(id).layout.base;
        if (!passes_on(base, node)) stays_[at(base)] = true;
      }
    }
    for (const Output& output : program.outputs) {
      stays_[at(program.value(output.value).layout.base)] = true;
    }
    for (const Update& update : program.updates) {
      stays_[at(program.value(update.value).layout.base)] = true;
    }
  }

  static bool is_part(const Program& program, const Node& node) {
    return node.op->fusion != Fusion::kNone && !makes_views(program, node) &&
           program.value(node.outputs[0]).role != Role::kWeightCast;
  }

  double us(const Node& node) const {
    Cost cost{.flops = cost_of(program_, node).flops};
    bool is_first = true;
    for (ValueId id : node.inputs) {
      const ValueId base = program_.value(id).layout.base;
      if (passes_on(base, node)) {
        is_first = false;
      } else {
        cost.bytes_read += std::min(program_.type(base).bytes(), program_.type(id).bytes());
      }
    }
    for (ValueId id : node.outputs) {
      if (stays_[at(id)]) cost.bytes_written += program_.type(id).bytes();
    }
    const RoofTime time = roof_time(cost, device_.peaks.fp32_tflops, device_.peaks.bandwidth_gb_s);
    return (is_first ? device_.launch_us : 0.0) + time.us();
  }

 private:
  // True if the value and its reader are made in one fused kernel, so that the value is not loaded.
  bool passes_on(ValueId base, const Node& reader) const {
    const NodeId maker = program_.value(base).producer;
    if (maker == kNoNode || !is_part(program_, reader)) return false;
    const Node& node = program_.node(maker);
    return is_part(program_, node) && node.origin().phase == reader.origin().phase &&
           node.epoch == reader.epoch;
  }

  const Program& program_;
  const TypicalDevice& device_;
  std::vector<bool> stays_;  // by base value: something else reads it
};

}  // namespace

std::vector<double> modelled_us_by_node(const Program& program, DeviceKind kind, bool fuses) {
  std::vector<double> out;
  out.reserve(program.nodes.size());
  const FusedCosts fused(program, kind);
  for (const Node& node : program.nodes) {
    const bool is_part = fuses && FusedCosts::is_part(program, node);
    out.push_back(is_part ? fused.us(node) : modelled_us(program, node, kind));
  }
  return out;
}

double modelled_us(const Program& program, Phase phase, DeviceKind kind, bool fuses) {
  const std::vector<double> us = modelled_us_by_node(program, kind, fuses);
  double out = 0.0;
  for (std::size_t i = 0; i < us.size(); ++i) {
    if (program.nodes[i].origin().phase == phase) out += us[i];
  }
  return out;
}

double modelled_us(const Program& program, Phase phase, DeviceKind kind) {
  return modelled_us(program, phase, kind, false);
}

}  // namespace tracestep
