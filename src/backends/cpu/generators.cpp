// fill, iota, rope_table: results without operands.
#include <cmath>
#include <cstring>

#include "backends/cpu/kernels.h"
#include "backends/cpu/numbers.h"
#include "backends/cpu/plain_chunks.h"
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

}  // namespace

void add_generator_kernels(KernelTable& table) {
  table.add("fill", fill_kernel);
  table.add("iota", iota_kernel);
  table.add("rope_table", rope_table_kernel);
}

}  // namespace tracestep::cpu
