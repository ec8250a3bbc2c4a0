// Rotary embedding: the pair (x_2j, x_2j+1), by halves (x_j, x_j+D/2), of position t is multiplied
// by e^(i·angle), as a complex number; the inverse by e^(-i·angle).
#include <complex>

#include "backends/reference/kernels.h"
#include "backends/reference/tensor_access.h"

namespace tracestep::reference {
namespace {

void rope(const KernelCall& call) {
  const bool inverse = call.attrs.flag("inverse");
  Shape pairs = call.inputs[0].shape;
  const std::int64_t half = pairs[pairs.rank() - 1] /= 2;
  const bool by_halves = call.attrs.flag("halves");
  const View<double> x(call.inputs[0]), cos(call.inputs[1]), sin(call.inputs[2]);
  const View<double> y(call.outputs[0]);
  for_each_index(pairs, [&](const Dims& pair) {
    const std::int64_t t = pair.back(1), j = pair.back(0);
    const Dims first = replaced(pair, pair.rank() - 1, by_halves ? j : 2 * j);
    const Dims second = replaced(pair, pair.rank() - 1, by_halves ? j + half : 2 * j + 1);
    const std::complex<double> turn(cos[{t, j}], inverse ? -sin[{t, j}] : sin[{t, j}]);
    const std::complex<double> turned = std::complex<double>(x[first], x[second]) * turn;
    y[first] = turned.real();
    y[second] = turned.imag();
  });
}

}  // namespace

void add_rope(KernelTable& table) {
  table.add("rope", rope);
}

}  // namespace tracestep::reference
