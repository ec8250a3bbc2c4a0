// widen_nf4: of each block the 16 values that its codes stand for are made once, and looked up.
#include "backends/cpu/kernels.h"
#include "backends/cpu/plain_chunks.h"
#include "base/half.h"
#include "ops/nf4_codes.h"

namespace tracestep::cpu {
namespace {

constexpr std::int64_t kBlocksOfChunk = 64;
constexpr DynamicValues kDynamic;

float as(float x, float) {
  return x;
}
BF16 as(float x, BF16) {
  return to_bf16(x);
}
F16 as(float x, F16) {
  return to_f16(x);
}

template <class T>
void widen(const KernelCall& call) {
  const auto* codes = call.inputs[0].as<const std::uint8_t>();
  const auto* magnitudes = call.inputs[1].as<const std::uint8_t>();
  const auto* scales = call.inputs[2].as<const float>();
  const float offset = *call.inputs[3].as<const float>();
  T* w = call.outputs[0].as<T>();
  const std::int64_t blocks = call.outputs[0].count() / kNf4Block;
  for_plain(call, ceil_div(blocks, kBlocksOfChunk), [&](std::int64_t chunk) {
    const std::int64_t end = std::min(blocks, (chunk + 1) * kBlocksOfChunk);
    for (std::int64_t block = chunk * kBlocksOfChunk; block < end; ++block) {
      const float m = kDynamic.at[magnitudes[block]] * scales[block / kNf4Group] + offset;
      T values[16];
      for (int i = 0; i < 16; ++i) values[i] = as(kNf4Values[i] * m, T());
      for (std::int64_t i = block * kNf4Block / 2; i < (block + 1) * kNf4Block / 2; ++i) {
        w[2 * i] = values[codes[i] >> 4];
        w[2 * i + 1] = values[codes[i] & 15];
      }
    }
  });
}

void widen_nf4(const KernelCall& call) {
  switch (call.outputs[0].dtype) {
    case DType::kBF16: return widen<BF16>(call);
    case DType::kF16: return widen<F16>(call);
    default: return widen<float>(call);
  }
}

}  // namespace

void add_nf4_kernels(KernelTable& table) {
  table.add("widen_nf4", widen_nf4);
}

}  // namespace tracestep::cpu
