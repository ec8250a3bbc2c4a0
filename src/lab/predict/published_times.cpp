#include "lab/predict/published_times.h"

#include <algorithm>

#include "lab/predict/launch_sum.h"

namespace tracestep {
namespace {

// The time that a launch adds to a kernel's, and the share of the peak that products of float32
// reach. Both are fitted to steps of an H200 (docs/predict.md).
constexpr double kLaunchUs = 3.0, kFloat32Share = 0.68;
// The share of the nominal rate of the slot between device and host that copies reach.
constexpr double kHostLinkShare = 0.68;
// The peak's share that products by parts reach, with splitting (bench/results/cuda-h200.md).
constexpr double kShareByParts = 0.5;
// The factors from predicted times to the upper end of their band: of kernels, and of attention.
constexpr double kMostSlowdown = 1.5, kMostSlowdownOfAttention = 3.0;

class OfPeaks : public TimeModel {
 public:
  OfPeaks(DevicePeaks peaks, const ReachedShares& shares)
      : peaks_(std::move(peaks)), shares_(shares) {}

  StepTime time_of(const RunSpec& run, const Program& program, const DeviceTraits&,
                   const std::optional<Link>& link) const override {
    const BufferPlan buffer_plan = plan_buffers(program);
    const Between none;
    LaunchSum all(program, link, none);
    double at_peak_ms = 0, attention_ms = 0;  // at_peak_ms: without collectives
    for (std::size_t i = 0; i < program.nodes.size(); ++i) {
      const Node& node = program.nodes[i];
      const auto id = static_cast<NodeId>(i);
      if (!launches(program, node)) continue;
      if (const std::optional<double> us = all.collective_us(id)) {
        all.add(id, *us);
        continue;
      }
      const RoofTime roof = roof_time(program, node, peaks_, run.precision.tf32);
      const double link_us = us_over_link(bytes_over_link(program, buffer_plan, node));
      const double us =
          kLaunchUs + std::max(kernel_us(program, run, node, roof), link_us / kHostLinkShare);
      all.add(id, us);
      at_peak_ms += std::max(roof.us(), link_us) * 1e-3;
      if (node.op->kernel_class == KernelClass::kAttention) attention_ms += us * 1e-3;
    }
    StepTime out = all.sum();
    out.ms = out.kernels_ms - out.beside_ms;
    out.low_ms = std::min(at_peak_ms, out.ms);
    out.high_ms =
        out.ms * kMostSlowdown + attention_ms * (kMostSlowdownOfAttention - kMostSlowdown);
    return out;
  }

  std::string source() const override {
    return fmt::format("from published peaks of {}", peaks_.name);
  }

 private:
  double kernel_us(const Program& program, const RunSpec& run, const Node& node,
                   const RoofTime& roof) const {
    if (!is_product(node)) return std::max(roof.computing_us / kFloat32Share, roof.moving_us);
    const bool is_attention = node.op->kernel_class == KernelClass::kAttention;
    const double computing_us = roof.computing_us / share_of(program, run, node, is_attention);
    if (shares_.adds_bytes && !is_attention) return computing_us + roof.moving_us;
    return std::max(computing_us, roof.moving_us);
  }

  double share_of(const Program& program, const RunSpec& run, const Node& node,
                  bool is_attention) const {
    if (is_by_parts(node)) return kShareByParts;
    const bool is_whole = program.type(node.inputs[0]).dtype == DType::kF32 && !run.precision.tf32;
    if (is_whole) return kFloat32Share;
    if (!is_attention) return shares_.products;
    const Shape& rows = program.type(node.inputs[1]).shape;  // of keys, in a gradient of queries
    const auto context = static_cast<double>(rows.back(1));
    return shares_.attention * context / (context + shares_.half_context);
  }

  double us_over_link(double bytes) const {
    return peaks_.host_gb_s > 0 ? bytes / (peaks_.host_gb_s * 1e3) : 0.0;
  }

  DevicePeaks peaks_;
  ReachedShares shares_;
};

}  // namespace

std::unique_ptr<TimeModel> make_time_model(const DevicePeaks& peaks, const ReachedShares& shares) {
  return std::make_unique<OfPeaks>(peaks, shares);
}

}  // namespace tracestep
