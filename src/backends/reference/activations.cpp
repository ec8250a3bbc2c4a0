// SiLU, GELU and SwiGLU, with derivatives taken by hand.
//
// With s = 1/(1+e^-x):  silu = x s,  ds/dx = s (1 - s),  dsilu/dx = s + x s (1 - s).
// With t = tanh(z):  gelu = x (1 + t) / 2,  dgelu/dx = (1 + t) / 2 + x (1 - t²) / 2 · dz/dx.
#include <cmath>
#include <numbers>

#include "backends/reference/kernels.h"
#include "backends/reference/tensor_access.h"

namespace tracestep::reference {
namespace {

double logistic(double x) {
  return 1 / (1 + std::exp(-x));
}
double silu_of(double x) {
  return x * logistic(x);
}
double silu_slope(double x) {
  const double s = logistic(x);
  return s + x * s * (1 - s);
}

void silu(const KernelCall& call) {
  const View<double> x(call.inputs[0]), y(call.outputs[0]);
  for_each_index(call.outputs[0].shape, [&](const Dims& i) { y[i] = silu_of(x[i]); });
}

void silu_grad(const KernelCall& call) {
  const View<double> dy(call.inputs[0]), x(call.inputs[1]), dx(call.outputs[0]);
  for_each_index(call.outputs[0].shape, [&](const Dims& i) { dx[i] = dy[i] * silu_slope(x[i]); });
}

// Returns the argument of tanh in GELU: √(2/π) (x + 0.044715 x³).
double gelu_argument(double x) {
  return std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x);
}
double gelu_argument_slope(double x) {
  return std::sqrt(2 / std::numbers::pi) * (1 + 3 * 0.044715 * x * x);
}

void gelu(const KernelCall& call) {
  const View<double> x(call.inputs[0]), y(call.outputs[0]);
  for_each_index(call.outputs[0].shape,
                 [&](const Dims& i) { y[i] = x[i] * (1 + std::tanh(gelu_argument(x[i]))) / 2; });
}

void gelu_grad(const KernelCall& call) {
  const View<double> dy(call.inputs[0]), x(call.inputs[1]), dx(call.outputs[0]);
  for_each_index(call.outputs[0].shape, [&](const Dims& i) {
    const double t = std::tanh(gelu_argument(x[i]));
    dx[i] = dy[i] * ((1 + t) / 2 + x[i] * (1 - t * t) / 2 * gelu_argument_slope(x[i]));
  });
}

// Returns the normal distribution Φ(x), by the error function of the standard library.
double normal_cdf(double x) {
  return std::erfc(-x / std::numbers::sqrt2) / 2;
}

void gelu_erf(const KernelCall& call) {
  const View<double> x(call.inputs[0]), y(call.outputs[0]);
  for_each_index(call.outputs[0].shape, [&](const Dims& i) { y[i] = x[i] * normal_cdf(x[i]); });
}

void gelu_erf_grad(const KernelCall& call) {
  const View<double> dy(call.inputs[0]), x(call.inputs[1]), dx(call.outputs[0]);
  for_each_index(call.outputs[0].shape, [&](const Dims& i) {
    const double density = std::exp(-x[i] * x[i] / 2) / std::sqrt(2 * std::numbers::pi);
    dx[i] = dy[i] * (normal_cdf(x[i]) + x[i] * density);
  });
}

void swiglu(const KernelCall& call) {
  const View<double> gate(call.inputs[0]), up(call.inputs[1]), y(call.outputs[0]);
  for_each_index(call.outputs[0].shape, [&](const Dims& i) { y[i] = silu_of(gate[i]) * up[i]; });
}

// Computes dgate and dup, which may lie in the storage of gate and up: an element is read first.
void swiglu_grad(const KernelCall& call) {
  const View<double> dy(call.inputs[0]), gate(call.inputs[1]), up(call.inputs[2]);
  const View<double> dgate(call.outputs[0]), dup(call.outputs[1]);
  for_each_index(call.inputs[0].shape, [&](const Dims& i) {
    const double g = gate[i], u = up[i], d = dy[i];
    if (dgate) dgate[i] = d * u * silu_slope(g);
    if (dup) dup[i] = d * silu_of(g);
  });
}

}  // namespace

void add_activations(KernelTable& table) {
  table.add("silu", silu);
  table.add("silu_grad", silu_grad);
  table.add("gelu", gelu);
  table.add("gelu_grad", gelu_grad);
  table.add("gelu_erf", gelu_erf);
  table.add("gelu_erf_grad", gelu_erf_grad);
  table.add("swiglu", swiglu);
  table.add("swiglu_grad", swiglu_grad);
}

}  // namespace tracestep::reference
