// widen_nf4: a thread makes 8 elements from 4 bytes of codes. All threads that make a block of 64
// elements look its magnitude up, which costs less than passing it from one to the others.
#include "backends/cuda/dtype_store.cuh"
#include "backends/cuda/kernels.h"
#include "backends/cuda/launch.cuh"
#include "ops/nf4_codes.h"

namespace tracestep::cuda {
namespace {

constexpr int kThreads = 256, kElements = 8;  // kElements: elements of a thread
static_assert(kNf4Block % kElements == 0);
// The numbers for which the 16 NF4 codes stand, for use in kernels.
struct Nf4Codes {
  float at[16];
  constexpr Nf4Codes() : at() {
    for (int i = 0; i < 16; ++i) at[i] = kNf4Values[i];
  }
};
__constant__ Nf4Codes kCodes;
__constant__ DynamicValues kDynamic;  // a warp reads four of them

// Writes to w [count] the numbers for which `codes` stand: [count/8] words of 8 codes each.
__global__ void __launch_bounds__(kThreads)
    widen_nf4_kernel(Predecessors before, const std::uint32_t* codes,
                     const std::uint8_t* magnitudes, const float* scales, const float* offset,
                     std::int64_t group, AnyResult<float> w, std::int64_t words) {
  before.wait();
  // The table in shared memory, where lanes that look up different codes need one access.
  __shared__ float values[16];
  if (threadIdx.x < 16) values[threadIdx.x] = kCodes.at[threadIdx.x];
  __syncthreads();  // the values are there
  const std::int64_t word = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (word >= words) return;
  const std::int64_t block = word / (kNf4Block / kElements);
  const float m = kDynamic.at[magnitudes[block]] * scales[block / group] + *offset;
  const std::uint32_t bits = codes[word];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    Pack<float, 4> out;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int byte = 2 * half + i / 2;  // the first code of a byte is in its high bits
      out.at[i] = values[bits >> (8 * byte + (i % 2 == 0 ? 4 : 0)) & 15U] * m;
    }
    w.put<4>(word * kElements + 4 * half, out);
  }
}

void widen_nf4(const KernelCall& call) {
  const std::int64_t words = call.outputs[0].count() / kElements;
  if (words == 0) return;
  const Grid grid{.blocks = static_cast<unsigned>(ceil_div(words, kThreads)), .threads = kThreads};
  launch(call, grid, widen_nf4_kernel, call.inputs[0].as<const std::uint32_t>(),
         call.inputs[1].as<const std::uint8_t>(), call.inputs[2].as<const float>(),
         call.inputs[3].as<const float>(), call.attrs.integer("group"),
         AnyResult<float>(call.outputs[0]), words);
}

}  // namespace

void add_nf4_kernels(KernelTable& table) {
  table.add("widen_nf4", widen_nf4);
}

}  // namespace tracestep::cuda
