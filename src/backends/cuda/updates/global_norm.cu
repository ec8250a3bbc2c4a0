// √Σx² over many tensors. Every tensor is cut into parts of a fixed size, one block each; one more
// block adds the sums of the parts. The tensors are listed in the kernel's arguments, so that
// hundreds of them need one launch and no table in device memory.
#include "backends/cuda/kernels.h"
#include "backends/cuda/rows/dense_reduce.cuh"
#include "planning/cuda_plans.h"

namespace tracestep::cuda {
namespace {

constexpr int kMostOperands = 512;  // per launch; 10.5 KiB of arguments
constexpr unsigned kNormThreads = 256;

struct NormOperands {
  const void* data[kMostOperands];
  std::int64_t counts[kMostOperands];
  unsigned first_parts[kMostOperands];  // ascending
  DType dtypes[kMostOperands];
  int operands;
};

// Sums squares in packs of float32 for every T, so that a widened copy of a tensor has its norm.
template <class T>
__device__ float sum_of_squares(const void* data, std::int64_t begin, std::int64_t count) {
  return reduce_dense<Plus, Squared, kPack<float>>(static_cast<const T*>(data) + begin, count,
                                                   static_cast<int>(threadIdx.x),
                                                   static_cast<int>(kNormThreads));
}

__global__ void __launch_bounds__(kNormThreads)
    sum_squares_kernel(Predecessors before, const __grid_constant__ NormOperands of,
                       float* partials) {
  before.wait();
  __shared__ float scratch[kWarp];
  int operand = 0, behind = of.operands;  // the last one that begins at this part or before
  while (behind - operand > 1) {
    const int middle = (operand + behind) / 2;
    (of.first_parts[middle] <= blockIdx.x ? operand : behind) = middle;
  }
  const std::int64_t begin = std::int64_t{blockIdx.x - of.first_parts[operand]} * kCudaNormPart;
  const std::int64_t count = ::min(of.counts[operand] - begin, kCudaNormPart);
  const void* data = of.data[operand];
  float own = 0.0f;
  switch (of.dtypes[operand]) {
    case DType::kBF16: own = sum_of_squares<BF16>(data, begin, count); break;
    case DType::kF16: own = sum_of_squares<F16>(data, begin, count); break;
    default: own = sum_of_squares<float>(data, begin, count);
  }
  const float total = lanes_reduce<Plus>(own, static_cast<int>(kNormThreads), scratch);
  if (threadIdx.x == 0) partials[blockIdx.x] = total;
}

}  // namespace

void global_norm(const KernelCall& call) {
  auto* const partials = reinterpret_cast<float*>(call.workspace.data());
  NormOperands of;
  of.operands = 0;
  std::int64_t parts = 0, launched = 0;
  const auto launch_operands = [&] {
    launch(call, {.blocks = static_cast<unsigned>(parts - launched), .threads = kNormThreads},
           sum_squares_kernel, of, partials + launched);
    launched = parts;
    of.operands = 0;
  };
  for (const TensorRef& x : call.inputs) {
    const std::int64_t count = x.count();
    if (count == 0) continue;
    of.data[of.operands] = x.data;
    of.counts[of.operands] = count;
    of.first_parts[of.operands] = static_cast<unsigned>(parts - launched);
    of.dtypes[of.operands] = x.dtype;
    parts += cuda_norm_parts(count);
    if (++of.operands == kMostOperands) launch_operands();
  }
  launch_operands();  // nothing when there are no parts left
  sum_partials(call, partials, parts, call.outputs[0].as<float>(), Root());
}

}  // namespace tracestep::cuda
