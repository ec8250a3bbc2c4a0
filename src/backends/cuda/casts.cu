// cast and select: the elementwise ops whose operands have different dtypes.
#include "backends/cuda/any_result.cuh"
#include "backends/cuda/kernels.h"
#include "backends/cuda/map.cuh"

namespace tracestep::cuda {
namespace {

struct Identity {
  template <class T>
  __device__ T operator()(T x) const {
    return x;
  }
};

void cast(const KernelCall& call) {
  with_number(call.inputs[0].dtype, [&]<class T>(T) {
    map<T>(call, Identity(), AnyResult<T>(call.outputs[0]), call.inputs);
  });
}

struct Select {
  template <class T>
  __device__ T operator()(std::uint8_t condition, T a, T b) const {
    return condition != 0 ? a : b;
  }
};

// Bits are moved as they are, so that every dtype of one size shares the code.
template <class T>
void select_bits(const KernelCall& call) {
  map<std::uint8_t, T, T>(call, Select(), Result<T>(call.outputs[0]), call.inputs);
}

void select(const KernelCall& call) {
  switch (size_of(call.outputs[0].dtype)) {
    case 1: return select_bits<std::uint8_t>(call);
    case 2: return select_bits<std::uint16_t>(call);
    case 4: return select_bits<std::uint32_t>(call);
    default: return select_bits<std::uint64_t>(call);
  }
}

}  // namespace

void add_cast_kernels(KernelTable& table) {
  table.add("cast", cast);
  table.add("select", select);
}

}  // namespace tracestep::cuda
