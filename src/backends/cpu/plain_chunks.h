// Helpers for kernels without vector arithmetic: chunks of elements, and integers of any width.
#pragma once

#include <algorithm>
#include <cstdint>

#include "backends/cpu/threads.h"

namespace tracestep::cpu {

inline constexpr std::int64_t kPlainChunk = 16384;

// Calls f(chunk) for all chunks, on this call's threads.
template <class F>
void for_plain(const KernelCall& call, std::int64_t chunks, const F& f) {
  run_chunks(
      threads_of(call), chunks,
      [](const void* context, std::int64_t chunk, int) {
        (*static_cast<const F*>(context))(chunk);
      },
      &f);
}

// Calls f(begin, n) for chunks that cover 0 <= i < count.
template <class F>
void for_plain_chunks(const KernelCall& call, std::int64_t count, const F& f) {
  for_plain(call, (count + kPlainChunk - 1) / kPlainChunk, [&](std::int64_t chunk) {
    const std::int64_t begin = chunk * kPlainChunk;
    f(begin, std::min(kPlainChunk, count - begin));
  });
}

// Returns element i of a dense tensor of integers.
inline std::int64_t integer_at(const TensorRef& x, std::int64_t i) {
  switch (x.dtype) {
    case DType::kI64: return x.as<const std::int64_t>()[i];
    case DType::kI32: return x.as<const std::int32_t>()[i];
    default: return x.as<const std::uint8_t>()[i];
  }
}

}  // namespace tracestep::cpu
