// Generators: every element from its index alone.
#include <cmath>

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

// The angle of position t and pair j is t · theta^(-2j/width).
void rope_table(const KernelCall& call) {
  const Attrs& attrs = call.attrs;
  const Shape& shape = (call.outputs[0].data != nullptr ? call.outputs[0] : call.outputs[1]).shape;
  const View<double> cos(call.outputs[0]), sin(call.outputs[1]);
  const auto width = static_cast<double>(attrs.integer("width"));
  for_each_index(shape, [&](const Dims& i) {
    const auto t = static_cast<double>(i[0]), j = static_cast<double>(i[1]);
    const double angle = t / std::pow(attrs.real("theta"), 2.0 * j / width);
    if (cos) cos[i] = std::cos(angle);
    if (sin) sin[i] = std::sin(angle);
  });
}

}  // namespace

void add_generators(KernelTable& table) {
  table.add("fill", fill);
  table.add("iota", iota);
  table.add("rope_table", rope_table);
}

}  // namespace tracestep::reference
