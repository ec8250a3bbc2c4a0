// Generators: every element is computed from its index alone.
#include <algorithm>
#include <cmath>
#include <numbers>
#include <sstream>

#include "backends/reference/kernels.h"
#include "backends/reference/tensor_access.h"

namespace tracestep::reference {
namespace {

void fill(const KernelCall& call) {
  const TensorRef& y = call.outputs[0];
  const double value = call.attrs.real("value");
  with_type(y.dtype, [&](auto zero) {
    using T = decltype(zero);
    const View<T> out(y);
    for_each_index(y.shape, [&](const Dims& i) { out[i] = static_cast<T>(value); });
  });
}

void iota(const KernelCall& call) {
  const TensorRef& y = call.outputs[0];
  const int axis = axis_of(call.attrs.integer("axis"), y.shape.rank());
  with_type(y.dtype, [&](auto zero) {
    using T = decltype(zero);
    const View<T> out(y);
    for_each_index(y.shape, [&](const Dims& i) { out[i] = static_cast<T>(i[axis]); });
  });
}

// Returns the numbers in a list with colons in between: {1, 1.5, 2} for "1:1.5:2".
std::vector<double> numbers_of(const std::string& text) {
  std::vector<double> out;
  std::istringstream list(text);
  for (std::string own; std::getline(list, own, ':');) out.push_back(std::stod(own));
  return out;
}

// Returns the frequency of pair j: f = theta^(-2j/width), or what `scaling` makes of f: f/factor
// (linear); a mean of f and f/factor, weighted by a ramp over wavelengths (llama3) or over pairs
// (yarn); or f divided by the pair's element of `factors` (longrope).
double frequency_of(const Attrs& attrs, const std::vector<double>& factors, double j) {
  const auto width = static_cast<double>(attrs.integer("width"));
  const double theta = attrs.real("theta"), factor = attrs.real("factor");
  const double low = attrs.real("low"), high = attrs.real("high");
  const auto original = static_cast<double>(attrs.integer("original"));
  const double plain = 1 / std::pow(theta, 2 * j / width);
  const std::string& scaling = attrs.text("scaling");
  const auto between = [](double a, double x, double b) {
    return std::clamp((x - a) / (b - a), 0.0, 1.0);
  };
  if (scaling == "linear") return plain / factor;
  if (scaling == "llama3") {
    const double wavelength = 2 * std::numbers::pi / plain;
    return std::lerp(plain / factor, plain, between(low, original / wavelength, high));
  }
  if (scaling == "yarn") {
    const auto pair = [&](double turns) {
      return width * std::log(original / (turns * 2 * std::numbers::pi)) / (2 * std::log(theta));
    };
    const double first = std::max(std::floor(pair(high)), 0.0);
    const double last = std::min(std::ceil(pair(low)), width - 1);
    return std::lerp(plain, plain / factor, between(first, j, first == last ? last + 1e-3 : last));
  }
  if (scaling == "longrope") {
    return plain / factors[static_cast<std::size_t>(j)];
  }
  return plain;
}

void rope_table(const KernelCall& call) {
  const Attrs& attrs = call.attrs;
  const Shape& shape = (call.outputs[0].data != nullptr ? call.outputs[0] : call.outputs[1]).shape;
  const View<double> cos(call.outputs[0]), sin(call.outputs[1]);
  const double magnitude = attrs.real("magnitude");
  const std::vector<double> factors = numbers_of(attrs.text("factors"));
  for_each_index(shape, [&](const Dims& i) {
    const double frequency = frequency_of(attrs, factors, static_cast<double>(i[1]));
    const double angle = static_cast<double>(i[0]) * frequency;
    if (cos) cos[i] = magnitude * std::cos(angle);
    if (sin) sin[i] = magnitude * std::sin(angle);
  });
}

}  // namespace

void add_generators(KernelTable& table) {
  table.add("fill", fill);
  table.add("iota", iota);
  table.add("rope_table", rope_table);
}

}  // namespace tracestep::reference
