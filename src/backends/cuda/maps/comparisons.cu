// Comparisons: two operands of any dtype, a bool result. Comparisons with NaN are false.
#include "backends/cuda/kernels.h"
#include "backends/cuda/maps/functor_apply.cuh"
#include "backends/cuda/maps/map.cuh"

namespace tracestep::cuda {
namespace {

template <class F>
void compare(const KernelCall& call) {
  with_number(call.inputs[0].dtype, [&]<class T>(T) {
    map<T, T>(call, Applied<F, T>(), Result<bool>(call.outputs[0]), call.inputs);
  });
}

}  // namespace

void add_comparison_kernels(KernelTable& table) {
#define TRACESTEP_ADD(name, functor) table.add(#name, compare<scalar::functor>);
  TRACESTEP_COMPARE_OPS(TRACESTEP_ADD)
#undef TRACESTEP_ADD
}

}  // namespace tracestep::cuda
