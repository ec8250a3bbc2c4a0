// cast and select: the elementwise ops whose operands have different dtypes.
#include "backends/cuda/dtype_store.cuh"
#include "backends/cuda/kernels.h"
#include "backends/cuda/maps/map.cuh"

namespace tracestep::cuda {
namespace {

struct Identity {
  template <class T>
  __device__ T operator()(T x) const {
    return x;
  }
};

void cast(const KernelCall& call) {
  const auto cast_from = [&]<class T>(T) {
    map<T>(call, Identity(), AnyResult<T>(call.outputs[0]), call.inputs);
  };
  switch (call.inputs[0].dtype) {
    case DType::kF8E4M3: return cast_from(F8E4M3());
    case DType::kF8E5M2: return cast_from(F8E5M2());
    default: return with_number(call.inputs[0].dtype, cast_from);
  }
}

// Returns a where the condition is true, else b, as raw bits: dtypes of one size share the code.
struct Select {
  template <class T>
  __device__ T operator()(std::uint8_t condition, T a, T b) const {
    return condition != 0 ? a : b;
  }
};

void select(const KernelCall& call) {
  const auto bytes = static_cast<std::int64_t>(size_of(call.outputs[0].dtype));
  with_bytes(bytes, [&]<class T>(T) {
    if constexpr (sizeof(T) <= 8) {
      map<std::uint8_t, T, T>(call, Select(), Result<T>(call.outputs[0]), call.inputs);
    }
  });
}

}  // namespace

void add_cast_kernels(KernelTable& table) {
  table.add("cast", cast);
  table.add("select", select);
}

}  // namespace tracestep::cuda
