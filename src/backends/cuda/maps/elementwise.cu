// Elementwise ops of one operand, and the table of all of them.
#include "backends/cuda/kernels.h"
#include "backends/cuda/maps/functor_apply.cuh"
#include "backends/cuda/maps/map.cuh"
#include "backends/cuda/maps/scaled.h"

namespace tracestep::cuda {
namespace {

template <class F>
void unary(const KernelCall& call) {
  with_floating(call.outputs[0].dtype, [&]<class T>(T) {
    map<T>(call, Applied<F, T>(), Result<T>(call.outputs[0]), call.inputs);
  });
}

template <class T>
struct AffineOf {
  float scale, shift;

  __device__ T operator()(T x) const {
    return from_float<T>(scalar::Affine()(Real{to_float(x)}, Real{scale}, Real{shift}).v);
  }
};

void affine_of(const KernelCall& call, std::span<const TensorRef> x, float scale, float shift) {
  with_floating(call.outputs[0].dtype, [&]<class T>(T) {
    map<T>(call, AffineOf<T>{scale, shift}, Result<T>(call.outputs[0]), x);
  });
}

void affine(const KernelCall& call) {
  affine_of(call, call.inputs, static_cast<float>(call.attrs.real("scale")),
            static_cast<float>(call.attrs.real("shift")));
}

}  // namespace

void multiply_last_operand(const KernelCall& call, float scale) {
  affine_of(call, call.inputs.last(1), scale, 0.0f);
}

void add_unary_kernels(KernelTable& table) {
#define TRACESTEP_ADD(name, functor) table.add(#name, unary<scalar::functor>);
  TRACESTEP_UNARY_OPS(TRACESTEP_ADD)
#undef TRACESTEP_ADD
  table.add("affine", affine);
}

void add_elementwise_kernels(KernelTable& table) {
  add_unary_kernels(table);
  add_binary_kernels(table);
  add_comparison_kernels(table);
}

}  // namespace tracestep::cuda
