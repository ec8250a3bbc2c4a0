#include "lab/predict/sized_products.h"

#include <map>

#include "lab/measure/measurement.h"
#include "lab/measure/statistics.h"
#include "lab/predict/measure_products.h"

namespace tracestep {
namespace {

std::map<DType, std::set<LinearLayer>> layers_of(const std::set<NamedProduct>& wanted,
                                                 const ProductTimes& times) {
  constexpr double kMostFlops = 2e12;
  std::map<DType, std::set<LinearLayer>> out;
  for (const auto& [kernel, shape] : wanted) {
    const std::optional<LinearLayer> layer = layer_of(kernel, shape);
    if (!layer || !times.interpolates(kernel, shape) || shape.flops() > kMostFlops) continue;
    for (DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
      if (is_product_of(kernel, dtype)) out[dtype].insert(*layer);
    }
  }
  return out;
}

}  // namespace

std::set<NamedProduct> products_of(const CalibratedStep& step) {
  std::set<NamedProduct> out;
  for (const CalibratedStep::Launch& launch : step.kernels) {
    if (launch.product.m > 0) out.emplace(launch.kernel, launch.product);
  }
  return out;
}

std::set<NamedProduct> products_of(const Program& program) {
  std::set<NamedProduct> out;
  for (const Node& node : program.nodes) {
    const ProductShape shape = product_shape(program, node);
    if (shape.m > 0) out.emplace(work_name(program, node), shape);
  }
  return out;
}

SizedProducts measure_sized_products(const std::function<std::unique_ptr<Device>()>& make_device,
                                     const std::set<NamedProduct>& wanted,
                                     const Calibration& calibration, const StopSignal* stop) {
  const ProductTimes times(calibration.products, calibration.sized_products,
                           multiprocessors_of(calibration));
  SizedProducts out;
  const std::map<DType, std::set<LinearLayer>> missing = layers_of(wanted, times);
  if (missing.empty()) return out;
  const std::unique_ptr<Device> device = make_device();
  std::vector<double> ratios;
  for (const auto& [dtype, layers] : missing) {
    const std::vector<LinearLayer> its(layers.begin(), layers.end());
    const Outcome outcome = attempt([&, dtype = dtype] {
      for (const MeasuredProduct& p : measure_products(*device, dtype, its, stop)) {
        if (!times.interpolates(p.kernel, p.shape)) continue;
        if (const auto us = times.us(p.kernel, p.shape)) ratios.push_back(p.us / *us);
        out.measured.push_back(p);
      }
    });
    if (outcome.status == Status::kInterrupted) break;
  }
  if (!ratios.empty()) out.ratio = median_of(ratios);
  return out;
}

}  // namespace tracestep
