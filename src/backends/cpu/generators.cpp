// Ops whose results have no operands (fill, iota, rope_table), and widen_nf4, whose operands are
// 4-bit codes.
#include <cmath>
#include <cstring>

#include "backends/cpu/kernels.h"
#include "backends/cpu/numbers.h"
#include "backends/cpu/plain_chunks.h"
#include "base/half.h"
#include "ops/nf4_codes.h"
#include "ops/rope_frequency.h"

namespace tracestep::cpu {
namespace {

template <class T>
void fill_with(const KernelCall& call, const TensorRef& y, const void* first) {
  T value;
  std::memcpy(&value, first, sizeof(T));
  for_plain_chunks(call, y.count(), [&](std::int64_t begin, std::int64_t n) {
    std::fill_n(y.as<T>() + begin, n, value);
  });
}

void fill_kernel(const KernelCall& call) {
  const TensorRef& y = call.outputs[0];
  alignas(8) std::byte first[8] = {};
  put_number(first, y.dtype, 0, call.attrs.real("value"));
  switch (size_of(y.dtype)) {
    case 1: fill_with<std::uint8_t>(call, y, first); break;
    case 2: fill_with<std::uint16_t>(call, y, first); break;
    case 4: fill_with<std::uint32_t>(call, y, first); break;
    default: fill_with<std::uint64_t>(call, y, first); break;
  }
}

void iota_kernel(const KernelCall& call) {
  const TensorRef& y = call.outputs[0];
  auto axis = static_cast<int>(call.attrs.integer("axis"));
  if (axis < 0) axis += y.shape.rank();
  std::int64_t inner = 1;
  for (int i = axis + 1; i < y.shape.rank(); ++i) inner *= y.shape[i];
  for_plain_chunks(call, y.count(), [&](std::int64_t begin, std::int64_t n) {
    for (std::int64_t i = begin; i < begin + n; ++i) {
      put_number(y.data, y.dtype, i, i / inner % y.shape[axis]);
    }
  });
}

void rope_table_kernel(const KernelCall& call) {
  const TensorRef &cos = call.outputs[0], &sin = call.outputs[1];
  const std::int64_t length = cos.shape[0], half = cos.shape[1];
  const ops::RopeFrequency frequency = ops::rope_frequency(call.attrs);
  const double magnitude = call.attrs.real("magnitude");
  for_plain(call, (length + 63) / 64, [&](std::int64_t chunk) {
    for (std::int64_t t = chunk * 64; t < std::min(length, (chunk + 1) * 64); ++t) {
      for (std::int64_t j = 0; j < half; ++j) {
        const double angle = static_cast<double>(t) * frequency.of(static_cast<double>(j));
        const std::int64_t at = t * half + j;
        if (cos.data != nullptr) put_number(cos.data, cos.dtype, at, magnitude * std::cos(angle));
        if (sin.data != nullptr) put_number(sin.data, sin.dtype, at, magnitude * std::sin(angle));
      }
    }
  });
}

// How many blocks of 4-bit codes a chunk of widen_nf4 has, and the values of their magnitudes.
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
  const std::int64_t group = call.attrs.integer("group");
  for_plain(call, ceil_div(blocks, kBlocksOfChunk), [&](std::int64_t chunk) {
    const std::int64_t end = std::min(blocks, (chunk + 1) * kBlocksOfChunk);
    for (std::int64_t block = chunk * kBlocksOfChunk; block < end; ++block) {
      const float m = kDynamic.at[magnitudes[block]] * scales[block / group] + offset;
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

void add_generator_kernels(KernelTable& table) {
  table.add("fill", fill_kernel);
  table.add("iota", iota_kernel);
  table.add("rope_table", rope_table_kernel);
  table.add("widen_nf4", widen_nf4);
}

}  // namespace tracestep::cpu
