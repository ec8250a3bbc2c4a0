// Reductions: sums in long double, so that the order of the terms does not matter to a test.
#include <cmath>
#include <limits>

#include "backends/reference/kernels.h"
#include "backends/reference/tensor_access.h"

namespace tracestep::reference {
namespace {

// Reduces x along the call's axes: from combine.start(), combine.step() adds one element at a time.
template <class Combine>
void reduce(const KernelCall& call, const Combine& combine) {
  const TensorRef& x = call.inputs[0];
  const int rank = x.shape.rank();
  const bool keepdims = call.attrs.flag("keepdims");
  // `outer` walks the results, `inner` the elements of one result; both have the operand's axes.
  Shape outer = x.shape, inner = Dims::filled(rank, 1);
  Dims is_reduced = Dims::filled(rank, 0);
  for (std::int64_t a : call.attrs.ints("axes")) {
    const int axis = axis_of(a, rank);
    is_reduced[axis] = 1;
    inner[axis] = x.shape[axis];
    outer[axis] = 1;
  }
  const View<double> in(x), out(call.outputs[0]);
  for_each_index(outer, [&](const Dims& kept) {
    auto folded = combine.start();
    for_each_index(inner, [&](const Dims& reduced) {
      Dims i = kept;
      for (int axis = 0; axis < rank; ++axis) i[axis] += reduced[axis];
      folded = combine.step(folded, in[i]);
    });
    Dims result;
    for (int axis = 0; axis < rank; ++axis) {
      if (keepdims || is_reduced[axis] == 0) result.push_back(kept[axis]);
    }
    out[result] = static_cast<double>(folded);
  });
}

struct Sum {
  static long double start() { return 0; }
  static long double step(long double total, double x) { return total + x; }
};
struct Max {
  static double start() { return -std::numeric_limits<double>::infinity(); }
  static double step(double top, double x) { return x > top || std::isnan(x) ? x : top; }
};

void sum(const KernelCall& call) {
  reduce(call, Sum());
}

void max(const KernelCall& call) {
  reduce(call, Max());
}

void global_norm(const KernelCall& call) {
  long double total = 0;
  for (const TensorRef& x : call.inputs) {
    const View<double> in(x);
    for_each_index(x.shape,
                   [&](const Dims& i) { total += static_cast<long double>(in[i]) * in[i]; });
  }
  *call.outputs[0].as<double>() = static_cast<double>(std::sqrt(total));
}

}  // namespace

void add_reductions(KernelTable& table) {
  table.add("sum", sum);
  table.add("max", max);
  table.add("global_norm", global_norm);
}

}  // namespace tracestep::reference
