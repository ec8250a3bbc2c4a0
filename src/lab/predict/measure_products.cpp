#include "lab/predict/measure_products.h"

#include <algorithm>
#include <map>

#include "exec/executor.h"
#include "lab/measure/measurement.h"
#include "ops/functions.h"
#include "runtime/store.h"
#include "session/session.h"
#include "weights/model_store.h"

namespace tracestep {
namespace {

// The name of the tensor of which all operands are views, so that one store serves the whole grid.
constexpr const char* kElements = "elements";

std::int64_t operand_elements(const LinearLayer& l) {
  return l.rows * (l.in + l.out) + l.in * l.out;
}

// Makes the program of y = x Wᵀ, dx = dy W, dW = dyᵀ x, and of y and dx added to other tensors.
Program products_of(const LinearLayer& layer, const Type& elements) {
  Builder b("products of a linear layer");
  const Val all = b.parameter(kElements, elements);
  std::int64_t end = 0;
  const auto matrix = [&](std::int64_t rows, std::int64_t columns) {
    const std::int64_t begin = end;
    end += rows * columns;
    return ops::reshape(ops::slice(all, 0, begin, end), {rows, columns});
  };
  const Val x = matrix(layer.rows, layer.in), dy = matrix(layer.rows, layer.out);
  const Val w = matrix(layer.out, layer.in);
  const auto added = [&](Val a, Val c, ops::MatmulOptions o) {
    return b.call1("matmul_add", {a, w, c},
                   {{"transpose_a", o.transpose_a}, {"transpose_b", o.transpose_b}});
  };
  constexpr ops::MatmulOptions kForward{.transpose_b = true}, kBackward{};
  b.output("y", added(x, ops::matmul(x, w, kForward), kForward));
  b.output("dx", added(dy, ops::matmul(dy, w, kBackward), kBackward));
  b.output("dw", ops::matmul(dy, x, {.transpose_a = true}));
  return b.finish();
}

// Runs the layer's products once to warm up; long ones are then timed once, others twice.
void measure_layer(const RankStores& stores, const LinearLayer& layer, const Type& elements,
                   const StopSignal* stop, std::vector<MeasuredProduct>& out) {
  Device& device = stores.first().device();
  const auto executor = stores.executor({}, products_of(layer, elements));
  Measurement measurement(*executor, device, stop);
  std::map<NodeId, double> least_us;
  const auto observe = [&](const StepTimes&, const Recorder& recorder) {
    for (const Span& span : recorder.spans()) {
      const double us = static_cast<double>(span.end_ns - span.start_ns) * 1e-3;
      double& least = least_us.try_emplace(span.node, us).first->second;
      least = std::min(least, us);
    }
  };
  constexpr double kLongMs = 1;
  measurement.warm_up(1);
  measurement.record(measurement.span_ms() > kLongMs ? 1 : 2, observe);
  for (const KernelWork& w : kernel_work(executor->program(), device.traits(), {})) {
    out.push_back({w.kernel, w.product, least_us.at(w.node)});
  }
}

}  // namespace

const ProductGrid& product_grid(DType dtype) {
  static const ProductGrid kInWaves{.rows = {192, 384, 1664, 5632},
                                    .widths = {384, 640, 1408, 3584, 5632}};
  static const ProductGrid kDense{.rows = {192, 384, 832, 1664, 3328, 5632},
                                  .widths = {384, 640, 896, 1408, 2304, 3584, 5632, 9216}};
  return dtype == DType::kF32 ? kInWaves : kDense;
}

bool is_product_of(const std::string& kernel, DType dtype) {
  const std::string operands = fmt::format(" {0},{0}", name_of(dtype));
  return kernel.find(operands) != std::string::npos;
}

std::optional<LinearLayer> layer_of(const std::string& kernel, const ProductShape& s) {
  if (!kernel.starts_with("matmul ") && !kernel.starts_with("matmul_add ")) return std::nullopt;
  if (kernel.ends_with(" kk")) return LinearLayer{.rows = s.m, .in = s.k, .out = s.n};
  if (kernel.ends_with(" kn")) return LinearLayer{.rows = s.m, .in = s.n, .out = s.k};
  if (kernel.ends_with(" mn")) return LinearLayer{.rows = s.k, .in = s.n, .out = s.m};
  return std::nullopt;
}

std::vector<LinearLayer> layers_of(const ProductGrid& grid) {
  std::vector<LinearLayer> out;
  for (std::int64_t rows : grid.rows) {
    for (std::int64_t in : grid.widths) {
      for (std::int64_t width : grid.widths) out.push_back({rows, in, width});
    }
  }
  return out;
}

std::vector<MeasuredProduct> measure_products(Device& device, DType dtype,
                                              std::span<const LinearLayer> layers,
                                              const StopSignal* stop) {
  std::int64_t most = 1;
  for (const LinearLayer& layer : layers) most = std::max(most, operand_elements(layer));
  const Type elements{dtype, {most}};
  const RankStores stores(device);
  Builder b("elements of products");
  b.output("first", ops::slice(b.parameter(kElements, elements), 0, 0, 1));
  stores.first().bind(b.finish());
  initialize_for_timing(stores.first(), 0);
  std::vector<MeasuredProduct> out;
  for (const LinearLayer& layer : layers) measure_layer(stores, layer, elements, stop, out);
  return out;
}

}  // namespace tracestep
