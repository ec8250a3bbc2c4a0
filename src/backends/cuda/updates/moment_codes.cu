// Converts AdamW's moments to 8-bit codes and back, without an update.
#include "backends/cuda/kernels.h"
#include "backends/cuda/updates/moment_codes.cuh"

namespace tracestep::cuda {

namespace {

using namespace updates;
using scalar::FirstMoment;
using scalar::SecondMoment;

constexpr int kThreads = 256;
constexpr int kResident = 4;  // blocks of kThreads threads per multiprocessor
constexpr unsigned kWarps = kThreads / kWarp;

template <class Moment>
__global__ void __launch_bounds__(kThreads)
    moment_codes_kernel(Predecessors before, Stream x, Stream weight, Stream gradient, Stream step,
                        std::uint8_t* codes, float* scales, std::int64_t count) {
  before.wait();
  const Bits number = bits(Real{scalar_of(step, 0.0f)});
  const auto at = [](const Stream& from, std::int64_t i) {
    return Real{widened<1>(load<1>(from, i), from.dtype).at[0]};
  };
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const std::int64_t blocks = (count + kCodedBlock - 1) / kCodedBlock;
  std::int64_t block = std::int64_t{blockIdx.x} * kWarps + threadIdx.x / kWarp;
  for (; block < blocks; block += std::int64_t{gridDim.x} * kWarps) {
    const std::int64_t first = block * kCodedBlock + lane * kFour;
    Pack<float, kFour> values{};
    Bits noise[kFour] = {};
    for (int j = 0; j < kFour && first + j < count; ++j) {
      values.at[j] = at(x, first + j).v;
      noise[j] = scalar::RoundingNoise()(number, bits(at(weight, first + j)),
                                         bits(at(gradient, first + j)));
    }
    const Coded out = encoded<Moment>(values, noise);
    for (int j = 0; codes != nullptr && j < kFour && first + j < count; ++j) {
      codes[first + j] = static_cast<std::uint8_t>(out.word >> (8 * j));
    }
    if (scales != nullptr && lane == 0) scales[block] = out.scale;
  }
}

template <class Moment>
__global__ void __launch_bounds__(kThreads)
    from_moment_codes_kernel(Predecessors before, const std::uint8_t* codes, const float* scales,
                             float* x, std::int64_t count) {
  before.wait();
  const std::int64_t stride = std::int64_t{gridDim.x} * kThreads;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count; i += stride) {
    x[i] = decoded<Moment>(codes[i], 0, scales[i / kCodedBlock]).v;
  }
}

void moment_codes(const KernelCall& call) {
  const auto in = call.inputs, out = call.outputs;
  const std::int64_t count = in[0].count();
  if (count == 0) return;
  const Grid grid{.blocks = blocks_for(call, coded_blocks(count), kWarps, kResident, 8),
                  .threads = kThreads};
  const auto kernel = call.attrs.flag("first") ? moment_codes_kernel<FirstMoment>
                                               : moment_codes_kernel<SecondMoment>;
  launch(call, grid, kernel, Stream(in[0]), Stream(in[1]), Stream(in[2]), Stream(in[3]),
         out[0].as<std::uint8_t>(), out[1].as<float>(), count);
}

void from_moment_codes(const KernelCall& call) {
  const std::int64_t count = call.inputs[0].count();
  if (count == 0) return;
  const Grid grid{.blocks = blocks_for(call, count, kThreads, kResident, 8), .threads = kThreads};
  const auto kernel = call.attrs.flag("first") ? from_moment_codes_kernel<FirstMoment>
                                               : from_moment_codes_kernel<SecondMoment>;
  launch(call, grid, kernel, call.inputs[0].as<const std::uint8_t>(),
         call.inputs[1].as<const float>(), call.outputs[0].as<float>(), count);
}

}  // namespace

void add_moment_code_kernels(KernelTable& table) {
  table.add("moment_codes", moment_codes);
  table.add("from_moment_codes", from_moment_codes);
}

}  // namespace tracestep::cuda
